#!/usr/bin/env node
// Firefox in the place where Playwright starts it: a relay of WebDriver BiDi between the two, for a Firefox that is older
// than Playwright (an extended support release). Playwright sets media features, screens, downloads and a collector of bodies for
// every page, and gives up where Firefox does not know how: here that is answered as done, since no test is about them. And it
// overlooks downloads that have no id: here their address is one. All else passes through.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { WebSocket, WebSocketServer } from 'ws';

/** What a command answers that may be unknown: undefined for one that must be known. */
const answerOf = (/** @type {string} */ method) => {
  if (method === 'network.addDataCollector') return { collector: 'none' };
  return method.startsWith('emulation.') || method === 'browser.setDownloadBehavior' ? {} : undefined;
};

const { HOLDFAST_FIREFOX: program = 'firefox' } = process.env;
const firefox = spawn(program, process.argv.slice(2), { stdio: ['ignore', 'inherit', 'pipe'] });
firefox.on('exit', (code) => process.exit(code ?? 1));
firefox.on('error', ({ message }) => {
  console.error(message);
  process.exit(1);
});
createInterface(firefox.stderr).on('line', (line) => {
  const [, address] = /^WebDriver BiDi listening on (ws:.*)$/.exec(line) ?? [];
  if (address) relay(address);
  else console.error(line);
});

/** @param {string} address of Firefox; the relay's own is told in the same words */
function relay(address) {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, maxPayload: 2 ** 28 });
  server.on('connection', (theirs, { url }) => join(theirs, new WebSocket(address + url, { maxPayload: 2 ** 28 })));
  server.on('listening', () => {
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    console.error(`WebDriver BiDi listening on ws://127.0.0.1:${port}`);
  });
}

/**
 * @param {WebSocket} theirs
 * @param {WebSocket} firefoxes
 */
function join(theirs, firefoxes) {
  const opened = new Promise((resolve) => firefoxes.once('open', resolve));
  /** What is answered where Firefox refuses a command, by the command's number. */
  const instead = new Map();
  theirs.on('message', async (data) => {
    const text = data.toString();
    const { id, method } = JSON.parse(text);
    instead.set(id, answerOf(method));
    await opened;
    firefoxes.send(text);
  });
  firefoxes.on('message', (data) => {
    const message = JSON.parse(data.toString());
    const result = instead.get(message.id);
    instead.delete(message.id);
    const isRefused = result !== undefined && message.error === 'unknown command';
    theirs.send(JSON.stringify(isRefused ? { type: 'success', id: message.id, result } : identified(message)));
  });
  theirs.on('close', () => firefoxes.close());
  firefoxes.on('close', () => theirs.close());
}

/**
 * A message in which every download has an id.
 * @param {{ method?: string, params?: { navigation?: string | null, url: string } }} message
 */
function identified(message) {
  if (!message.params || !message.method?.startsWith('browsingContext.download')) return message;
  const { navigation, url } = message.params;
  return { ...message, params: { download: navigation ?? url, ...message.params } };
}
