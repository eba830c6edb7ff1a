// The browser under test: Chromium, or what HOLDFAST_BROWSER says.

import { findChromium } from './chromium.mjs';
import { findFirefox } from './firefox.mjs';

/** @type {'chromium' | 'firefox'} */
export const BROWSER = process.env['HOLDFAST_BROWSER'] === 'firefox' ? 'firefox' : 'chromium';

/** As `findChromium`. */
export const findBrowser = () => (BROWSER === 'firefox' ? findFirefox() : findChromium());
