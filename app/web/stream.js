// The live connection: reads /v1/stream with fetch(), which unlike EventSource can carry a token.
//
//   const stream = new Stream({open: () => api.stream(signal), poll: () => api.snapshot(), on: {frame, state}});
//   stream.start();
//
// States it reports: connecting, live, polling (the server has too many readers), waiting (with the time of the next
// try), unauthorised (until wake()). It never gives up: 1, 2, 4, 8, 15 s between tries, 15 from then on.

const SILENCE_MS = 12_000; // frames come every second; a connection without any is dead, whatever TCP believes
const POLL_MS = 5_000;

export const backoff = (failures) => Math.min(15_000, 1000 * 2 ** Math.max(0, failures - 1));

// Bytes to events; a chunk may end anywhere.
export class EventParser {
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = '';
    this.clear();
  }
  clear() { this.event = 'message'; this.data = []; }
  feed(text) {
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        if (this.data.length) this.onEvent({ event: this.event, data: this.data.join('\n') });
        this.clear();
      } else if (!line.startsWith(':')) {
        const at = line.indexOf(':');
        const field = at < 0 ? line : line.slice(0, at);
        const value = at < 0 ? '' : line.slice(at + 1).replace(/^ /, '');
        if (field === 'event') this.event = value;
        else if (field === 'data') this.data.push(value);
      }
    }
  }
}

export class Stream {
  constructor({ open, poll, onFrame, onState }) {
    Object.assign(this, { open, poll, onFrame, onState });
    this.failures = 0;
    this.running = false;
    this.wakeUp = () => {};
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.loop();
  }
  // A hidden tab holds no connection: a browser allows six per server, over all its tabs.
  stop() {
    this.running = false;
    this.abort?.abort();
    this.wakeUp();
  }
  wake() { // try now, e.g. with a new token
    this.failures = 0;
    this.abort?.abort();
    this.wakeUp();
  }

  async loop() {
    while (this.running) {
      this.onState({ state: 'connecting', failures: this.failures });
      const outcome = await this.connect();
      if (!this.running) break;
      if (outcome === 'unauthorised') {
        this.onState({ state: 'unauthorised' });
        await this.pause(null);
      } else if (outcome !== 'full' || !(await this.pollOnce())) {
        this.failures += 1;
        const delay = backoff(this.failures);
        this.onState({ state: 'waiting', until: Date.now() + delay, failures: this.failures });
        await this.pause(delay);
      } else {
        this.onState({ state: 'polling' });
        await this.pause(POLL_MS);
      }
    }
  }

  async connect() {
    const abort = (this.abort = new AbortController());
    let watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      const response = await this.open(abort.signal);
      if (response.status === 401 || response.status === 403) return 'unauthorised';
      if (response.status === 503) return 'full';
      if (!response.ok) return 'failed';
      const parser = new EventParser(({ event, data }) => {
        if (event === 'snapshot' || event === 'message') this.deliver(JSON.parse(data));
      });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return 'closed';
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
        parser.feed(value);
      }
    } catch {
      return 'failed'; // refused, reset, aborted, or not what we speak: all the same to the reader
    } finally {
      clearTimeout(watchdog);
    }
  }

  async pollOnce() {
    try {
      const response = await this.poll();
      if (!response.ok) return false;
      this.deliver(await response.json(), 'polling');
      return true;
    } catch {
      return false;
    }
  }

  deliver(doc, state = 'live') {
    this.failures = 0;
    this.onState({ state });
    this.onFrame(doc);
  }

  pause(ms) {
    return new Promise((resolve) => {
      const timer = ms === null ? null : setTimeout(resolve, ms);
      this.wakeUp = () => { clearTimeout(timer); resolve(); };
    });
  }
}
