// The script of a report's memory section: brings the chunk map to life. Built into the report by `?script`.

import { StepMap } from './step-map.ts';

const data = document.getElementById('memory')?.textContent;
const map = document.querySelector<HTMLElement>('.chunk-map');
if (data && map) new StepMap(map, JSON.parse(data));
