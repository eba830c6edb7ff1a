// `at`: the element at an index that is right by construction, where the caller's own data structure guarantees it.
// Not for indices from files, flags or users, whose absence is a message and not an assertion. Iteration,
// destructuring or an early return come first; this is for what is left.

/** `list[index]`. An `internal:` error where the list has no such index. */
export function at<T>(list: ArrayLike<T>, index: number): T {
  const element = list[index];
  if (element === undefined && !(Number.isInteger(index) && index >= 0 && index < list.length)) {
    throw new Error(`internal: index ${index} of a list of ${list.length}`);
  }
  return element as T;
}
