// `at`: the element at an index that the page's own data guarantees. What may be missing is asked for with `?.` or `??`.

/** `list[index]`. An error where the list has no such index: without it, a picture would be wrong and say nothing. */
export function at<T>(list: ArrayLike<T>, index: number): T {
  const element = list[index];
  if (element === undefined) throw new RangeError(`index ${index} of a list of ${list.length}`);
  return element;
}
