// The live connection: reads /v1/stream with fetch(), which unlike EventSource can carry a token.
//
//   const stream = makeStream((signal) => request('stream', { signal }), () => request('snapshot'), onFrame, onState);
//   stream.start();
//
// States: connecting, live, polling (too many readers), waiting (with the time of the next try), unauthorised (until wake()).
// It tries again after 1, 2, 4, 8, and then every 15 s.

const SILENCE_MS = 12_000; // frames arrive every second; a connection without any is dead
const POLL_MS = 5_000;

export const backoff = (failures) => Math.min(15_000, 1000 * 2 ** Math.max(0, failures - 1));

// Bytes to events; a chunk may end anywhere.
export function eventParser(onEvent) {
  let rest = '';
  return (text) => {
    const blocks = (rest + text).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const field = (name) => block.split(/\r?\n/).filter((line) => line.startsWith(name)).map((line) => line.slice(name.length).replace(/^ /, ''));
      const data = field('data:');
      if (data.length) onEvent(field('event:').at(-1) ?? 'message', data.join('\n'));
    }
  };
}

export function makeStream(open, poll, onFrame, onState) {
  let failures = 0, running = false, abort, wakeUp = () => {};

  async function start() {
    if (running) return;
    running = true;
    while (running) {
      onState({ state: 'connecting', failures });
      const state = await connect();
      if (!running) break;
      if (state) { // unauthorised or polling
        onState({ state });
        await pause(state === 'polling' && POLL_MS);
      } else {
        const delay = backoff(++failures);
        onState({ state: 'waiting', until: Date.now() + delay, failures });
        await pause(delay);
      }
    }
  }
  function wake() { // try now, e.g. with a new token
    failures = 0;
    abort?.abort();
    wakeUp();
  }
  // A hidden tab has no connection: browsers allow six per server.
  function stop() {
    running = false;
    wake();
  }

  async function connect() {
    const mine = (abort = new AbortController());
    let watchdog;
    const watch = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => mine.abort(), SILENCE_MS);
    };
    try {
      watch();
      let response = await open(mine.signal);
      const { status } = response;
      if (status === 401 || status === 403) return 'unauthorised';
      if (status === 503) { // too many streams: poll
        response = await poll();
        if (response.ok) deliver(await response.json(), 'polling');
        return response.ok && 'polling';
      }
      if (!response.ok) return;
      const feed = eventParser((event, data) => {
        if (event === 'snapshot' || event === 'message') deliver(JSON.parse(data));
      });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        watch();
        feed(value);
      }
    } catch {
      // connection refused, reset or aborted, or not an event stream: handled alike
    } finally {
      clearTimeout(watchdog);
    }
  }

  function deliver(doc, state = 'live') {
    failures = 0;
    onState({ state });
    onFrame(doc);
  }

  const pause = (ms) => new Promise((resolve) => { // without a time: until wake()
    const timer = ms && setTimeout(resolve, ms);
    wakeUp = () => { clearTimeout(timer); resolve(); };
  });

  return { start, stop, wake, running: () => running };
}
