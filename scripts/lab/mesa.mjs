// Requirements of the lab on a machine: Mesa's RADV, and a C compiler with Vulkan's headers for the layer, which is
// compiled once and kept in the cache. Says what is missing, and what would install it.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const SOURCE = fileURLToPath(new URL('null_gpu.c', import.meta.url));
const LAYER = 'VK_LAYER_HOLDFAST_null_gpu';
/** Where Vulkan's loader looks for drivers. */
const DRIVER_FOLDERS = ['/usr/share/vulkan/icd.d', '/usr/local/share/vulkan/icd.d', '/etc/vulkan/icd.d'];
const INSTALL =
  'apt-get install mesa-vulkan-drivers gcc libvulkan-dev (Mesa 25 or later; on Debian 12 with -t bookworm-backports)';

/** The environment in which a process finds the card that is not there; or a line on what is missing. */
export function prepare() {
  if (process.platform !== 'linux') return { missing: 'it needs Linux, where Mesa has RADV, its driver for AMD GPUs' };
  const driver = findDriver();
  if (!driver) return { missing: `there is no RADV, Mesa's driver for AMD GPUs; ${INSTALL}` };
  const { folder, missing } = buildLayer();
  if (missing) return { missing };
  const environment = {
    ...{ VK_DRIVER_FILES: driver, VK_ICD_FILENAMES: driver, VK_LAYER_PATH: folder, VK_INSTANCE_LAYERS: LAYER },
    XDG_RUNTIME_DIR: process.env['XDG_RUNTIME_DIR'] ?? os.tmpdir(),
    MESA_SHADER_CACHE_DISABLE: 'true',
  };
  return { environment };
}

/** RADV's manifest: the one that the environment names, or the system's. */
function findDriver() {
  const named = (process.env['VK_DRIVER_FILES'] ?? '').split(':').find((file) => /radeon/.test(path.basename(file)));
  if (named && existsSync(named)) return named;
  return DRIVER_FOLDERS.filter((folder) => existsSync(folder))
    .flatMap((folder) => readdirSync(folder).map((name) => path.join(folder, name)))
    .find((file) => /^radeon_icd.*\.json$/.test(path.basename(file)) && !/i[36]86/.test(file));
}

/** The folder with the layer and its manifest. */
function buildLayer() {
  const source = readFileSync(SOURCE);
  const cache = process.env['XDG_CACHE_HOME'] || path.join(os.homedir(), '.cache');
  const folder = path.join(cache, 'holdfast', `lab-${createHash('sha256').update(source).digest('hex').slice(0, 16)}`);
  const library = path.join(folder, 'libnull_gpu.so');
  if (existsSync(library)) return { folder };
  mkdirSync(folder, { recursive: true });
  const description = 'a GPU that does nothing';
  const layer = {
    name: LAYER,
    type: 'GLOBAL',
    library_path: library,
    api_version: '1.3.0',
    implementation_version: '1',
    description,
  };
  writeFileSync(path.join(folder, 'null_gpu.json'), JSON.stringify({ file_format_version: '1.0.0', layer }));
  // Another process may do the same.
  const partial = `${library}.${process.pid}`;
  const made = spawnSync('cc', ['-O1', '-shared', '-fPIC', '-o', partial, SOURCE], { encoding: 'utf8' });
  if (made.status !== 0) {
    const [first = made.error?.message] = (made.stderr ?? '').split('\n').filter((line) => /error/.test(line));
    return { missing: `the layer cannot be compiled (${first}); ${INSTALL}` };
  }
  renameSync(partial, library);
  return { folder };
}
