// The timers as they were when this package was loaded. A test that replaces those of the application moves what it stores by `Date`, and not the connections to a
// server that has its own time.

export const { clearInterval, clearTimeout, setImmediate, setInterval, setTimeout } = globalThis
