// The timers as they were when this package was loaded. A test that fakes the application's clock affects what the package stores by `Date`, but not its
// connections, because the server has its own time.

export const { clearInterval, clearTimeout, setImmediate, setInterval, setTimeout } = globalThis
