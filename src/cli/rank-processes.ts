// The process that each rank is. A rank that is killed says nothing: the system's log names it by its number, as where memory ran
// out. (MPICH's launcher names any of those that have ended, also one that it killed itself because of another.)

import type { Communicator } from '../engine/ranks/communicator.ts';
import type { ProcessName } from '../runtime/host.ts';

/** What to show of all ranks' processes, a line for each machine; on every rank. All ranks call it. */
export async function rankProcesses(control: Communicator, own: ProcessName | undefined): Promise<string[]> {
  const all = (await control.fromAll('the processes of the ranks', JSON.stringify(own ?? null))).map(
    (text): ProcessName | null => JSON.parse(text),
  );
  const lines: { first: number; machine: string; pids: number[] }[] = [];
  for (const [rank, found] of all.entries()) {
    if (!found) continue;
    const { machine, pid } = found;
    const last = lines.at(-1);
    if (last && last.machine === machine && last.first + last.pids.length === rank) last.pids.push(pid);
    else lines.push({ first: rank, machine, pids: [pid] });
  }
  return lines.map(({ first, machine, pids }) => {
    const one = pids.length === 1;
    const ranks = one ? `rank ${first}` : `ranks ${first} to ${first + pids.length - 1}`;
    return `${ranks}: ${one ? 'process' : 'processes'} ${pids.join(', ')} on ${machine}`;
  });
}
