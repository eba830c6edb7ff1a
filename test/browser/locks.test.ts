// Locks of the site: held once, free for the next as soon as they are released, and waited for no longer than was said.

import { expect, test } from 'vitest';
import { heldLocks, holdLock } from '../../src/runtime/browser/locks.ts';

test('a lock is held once, and free when it is released', async () => {
  const release = await holdLock('a run');
  expect(release).toBeDefined();
  expect(await holdLock('a run')).toBeUndefined();
  expect(await holdLock('a run', 20)).toBeUndefined();
  expect([...(await heldLocks())]).toContain('a run');
  release?.();
  (await holdLock('a run', 1e5))?.();
  await expect.poll(async () => (await heldLocks()).has('a run')).toBe(false);
});

test('one that is released meanwhile is had', async () => {
  const release = await holdLock('another run');
  const next = holdLock('another run', 1e5);
  setTimeout(() => release?.(), 20);
  expect(await next).toBeDefined();
  (await next)?.();
});
