// undici's cache interceptor over this store, with requests collapsed in this process and across all processes that share the store. undici alone decides which
// responses may be stored, under which key, and which requests are looked up. This interceptor adds its work only where undici calls the store and where it
// forwards a request.

import { type Dispatcher, errors, interceptors } from 'undici'
import type { CacheKey, CacheStore, CacheValue, GetResult } from './contract.js'
import { type Client, type Flight, Flights } from './flights.js'
import { isForItsOrigin } from './key.js'
import type { LarderCacheStore } from './store.js'

type Dispatch = Dispatcher['dispatch']
type Options = Dispatcher.DispatchOptions
type Handler = Dispatcher.DispatchHandler
type Controller = Dispatcher.DispatchController
type CacheInterceptorOptions = NonNullable<Parameters<typeof interceptors.cache>[0]>
/** Since undici 8.13, the second argument is the origin of the dispatcher, if it has one. */
type Interceptor = (dispatch: Dispatch, ...more: unknown[]) => Dispatch

export interface LarderCacheOptions extends Omit<CacheInterceptorOptions, 'store'> {
  store: LarderCacheStore
  /** The name of this cache in `Cache-Status` of responses (RFC 9211). @default the field is not added */
  cacheStatus?: string
}

/** Request fields that request something other than the shared response. */
const APART = new Set([
  'authorization', 'proxy-authorization', 'cookie', 'cache-control', 'pragma', 'range', 'if-match', 'if-none-match', 'if-modified-since', 'if-unmodified-since', 'if-range',
])

const CACHE_STATUS = Buffer.from('cache-status')

/** Creates the cache interceptor with requests collapsed across processes. Pass it to `compose` in place of `interceptors.cache`. */
export function larderCache(options: LarderCacheOptions): Dispatcher.DispatcherComposeInterceptor {
  const { store, cacheStatus, ...rest } = options
  const asked = new AskedStore(store)
  const around: Surroundings = { store, asked, flights: new Flights(store), methods: new Set(rest.methods ?? ['GET']), cacheStatus }
  const inner = interceptors.cache({ ...rest, store: asked as CacheInterceptorOptions['store'] & object }) as Interceptor
  const mark = Symbol('exchange')
  const interceptor: Interceptor = (dispatch, ...more) => {
    const cached = inner(forwardBy(dispatch, mark), ...more)
    return (opts, handler) => {
      if (!opts.origin) warnOfNoOrigin()
      const exchange = new Exchange(around, handler)
      const marked = { ...opts, [mark]: exchange }
      return exchange.start(marked, cached)
    }
  }
  // undici uses these symbols to recognise interceptors that must not precede others.
  for (const symbol of Object.getOwnPropertySymbols(inner)) Object.defineProperty(interceptor, symbol, Object.getOwnPropertyDescriptor(inner, symbol)!)
  return interceptor as Dispatcher.DispatcherComposeInterceptor
}

function forwardBy(dispatch: Dispatch, mark: symbol): Dispatch {
  return (opts, handler) => {
    const { [mark]: exchange } = opts as unknown as { [mark]?: Exchange }
    return exchange === undefined ? dispatch(opts, handler) : exchange.forward(opts, handler, dispatch)
  }
}

let hasWarned = false

function warnOfNoOrigin(): void {
  if (hasWarned) return
  hasWarned = true
  process.emitWarning('requests without an origin are not cached: undici before 8.13 doesn\'t tell interceptors the origin of a Client or a Pool. '
    + 'Use an Agent, or give `origin` with each request', { type: 'LarderCacheWarning', code: 'LARDER_NO_ORIGIN' })
}

interface Surroundings {
  readonly store: LarderCacheStore
  readonly asked: AskedStore
  readonly flights: Flights
  /** Methods whose responses are stored. */
  readonly methods: ReadonlySet<string>
  readonly cacheStatus: string | undefined
}

/** The store as undici calls it. undici makes the first call synchronously while it dispatches a request, so the request is known. */
class AskedStore implements CacheStore {
  readonly #store: LarderCacheStore
  /** Forwarded exchanges by their cache keys. */
  readonly #exchanges = new WeakMap<CacheKey, Exchange>()
  current: Exchange | undefined

  constructor(store: LarderCacheStore) {
    this.#store = store
  }

  tell(key: CacheKey, exchange: Exchange): void {
    this.#exchanges.set(key, exchange)
  }

  get(key: CacheKey): GetResult | Promise<GetResult | undefined> | undefined {
    const exchange = this.current
    return exchange === undefined || exchange.wasAsked ? this.#store.get(key) : exchange.lookUp(key)
  }

  createWriteStream(key: CacheKey, value: CacheValue): ReturnType<LarderCacheStore['createWriteStream']> {
    const exchange = this.#exchanges.get(key)
    if (exchange?.isUnlike === true) return undefined
    const writer = this.#store.createWriteStream(key, value)
    if (exchange !== undefined) exchange.isStoring = writer !== undefined
    return writer
  }

  /** With the key of an earlier look-up, undici deletes the response found by it, which a 304 may have made useless. Any other key is a deletion of the URL. */
  delete(key: CacheKey): Promise<void> {
    // An unsafe request to another host changes nothing at the origin.
    if (!isForItsOrigin(key.origin, key.headers?.host)) return Promise.resolve()
    return this.#exchanges.has(key) ? this.#store.forget(key) : this.#store.delete(key)
  }
}

type Arguments<Name extends keyof Handler> = Parameters<NonNullable<Handler[Name]>>

/** Legacy handler methods, by which undici 7 delivers its own 504. */
interface OldHandler {
  onConnect(abort: (reason?: Error) => void): void
  onHeaders(statusCode: number, headers: readonly Buffer[], resume: () => void, message: string): boolean
  onComplete(trailers: readonly Buffer[]): void
  onError(error: Error): void
}

/** Notifications about a request that is sent. */
interface Sending {
  onBodySent?(...args: unknown[]): void
  onRequestSent?(): void
  onResponseStarted?(): void
}

/** A request, between its client and undici's cache interceptor. */
class Exchange implements Handler, OldHandler, Sending {
  readonly #around: Surroundings
  readonly #handler: Handler & Sending
  #opts: Options | undefined
  #key: CacheKey | undefined
  /** The client's controller while the request waits. */
  #waiting: Waiting | undefined
  #flight: Flight | undefined
  #found: GetResult | undefined
  #isForwarded = false
  #hasWaited = false
  #wantsNothing = false
  wasAsked = false
  isStoring = false
  /** Whether no other request may share its response: it has content, is an upgrade, or is for a host other than its origin. */
  isUnlike = false

  constructor(around: Surroundings, handler: Handler) {
    this.#around = around
    this.#handler = handler as Handler & Sending
  }

  start(opts: Options, cached: Dispatch): boolean {
    const { asked } = this.#around
    const outer = asked.current
    asked.current = this
    this.#opts = opts
    try {
      return cached(opts, this)
    } finally {
      asked.current = outer
    }
  }

  forward(opts: Options, handler: Handler, dispatch: Dispatch): boolean {
    this.#isForwarded = true
    if (this.#key !== undefined) this.#around.asked.tell(this.#key, this)
    // If undici inspects the request fields first, it dispatches a copy of the options.
    this.#wantsNothing = !this.wasAsked && opts !== this.#opts
    if (this.#waiting?.isGone !== true) return dispatch(opts, handler)
    this.#end('gave-up')
    return true
  }

  lookUp(key: CacheKey): GetResult | Promise<GetResult | undefined> | undefined {
    const { store } = this.#around
    this.wasAsked = true
    this.#key = key
    this.isUnlike = this.#opts?.body != null || Boolean(this.#opts?.upgrade) || !isForItsOrigin(key.origin, key.headers?.host)
    if (this.isUnlike) return undefined
    const found = store.get(key)
    if (found !== undefined && !(found instanceof Promise)) return this.#note(found)
    const isApart = hasAny(key.headers, APART)
    if (isApart && found === undefined) return undefined
    const waiting = this.#wait()
    return (isApart ? waiting.until(found!) : this.#collapse(key, found, waiting)).then((result) => this.#note(result))
  }

  #note(result: GetResult | undefined): GetResult | undefined {
    this.#found = result
    return result
  }

  async #collapse(key: CacheKey, found: Promise<GetResult | undefined> | undefined, waiting: Waiting): Promise<GetResult | undefined> {
    const first = found && await waiting.until(found)
    if (first !== undefined || waiting.isGone) return first
    const { result, flight, hasWaited } = await this.#around.flights.join(key, waiting)
    this.#flight = flight
    this.#hasWaited = hasWaited
    return result
  }

  /** Lets the client give up from now on. undici notices that only once it has sent something. */
  #wait(): Waiting {
    const waiting = new Waiting((reason) => this.#handler.onResponseError?.(waiting.asController, reason))
    this.#waiting = waiting
    this.#handler.onRequestStart?.(waiting.asController, waiting.context)
    return waiting
  }

  /** Ends the flight, so that other requests stop waiting. */
  #end(landing: 'over' | 'gave-up'): void {
    this.#flight?.end(landing)
    this.#flight = undefined
  }

  get #isGone(): boolean {
    return this.#waiting?.isGone === true
  }

  onRequestStart(...[controller, context]: Arguments<'onRequestStart'>): void {
    if (this.#waiting === undefined) this.#handler.onRequestStart?.(controller, context)
    else this.#waiting.goOn(controller, context)
  }

  onRequestUpgrade(...args: Arguments<'onRequestUpgrade'>): void {
    this.#end('over')
    if (!this.#isGone) this.#handler.onRequestUpgrade?.(...args)
  }

  onResponseStart(...[controller, statusCode, headers, message]: Arguments<'onResponseStart'>): void {
    if (statusCode >= 200 && !this.isStoring) this.#end('over')
    if (this.#isGone) return
    this.#handler.onResponseStart?.(controller, statusCode, this.#decorated(controller, headers), message)
  }

  onResponseData(...args: Arguments<'onResponseData'>): void {
    if (!this.#isGone) this.#handler.onResponseData?.(...args)
  }

  onResponseEnd(...args: Arguments<'onResponseEnd'>): void {
    this.#end('over')
    if (!this.#isGone) this.#handler.onResponseEnd?.(...args)
  }

  /** If the client aborted, others may still need the response. */
  onResponseError(...args: Arguments<'onResponseError'>): void {
    const [controller] = args as [Controller | undefined, Error]
    this.#end(this.#isGone || controller?.aborted === true ? 'gave-up' : 'over')
    if (!this.#isGone) this.#handler.onResponseError?.(...args)
  }

  onBodySent(...args: unknown[]): void {
    this.#handler.onBodySent?.(...args)
  }

  onRequestSent(): void {
    this.#handler.onRequestSent?.()
  }

  onResponseStarted(): void {
    this.#handler.onResponseStarted?.()
  }

  onConnect(abort: (reason?: Error) => void): void {
    this.onRequestStart(controllerOf(abort), {})
  }

  onHeaders(statusCode: number, _headers: readonly Buffer[], _resume: () => void, message: string): boolean {
    this.onResponseStart(controllerOf(), statusCode, {}, message)
    return true
  }

  onComplete(): void {
    this.onResponseEnd(controllerOf(), {})
  }

  onError(error: Error): void {
    this.onResponseError(controllerOf(), error)
  }

  #decorated(controller: Controller, headers: Arguments<'onResponseStart'>[2]): typeof headers {
    const { cacheStatus } = this.#around
    if (cacheStatus === undefined) return headers
    const [status, before] = [`${cacheStatus}; ${this.#status()}`, headers['cache-status']]
    // undici 8 and newer give `fetch` these fields.
    const { rawHeaders } = controller as { rawHeaders?: unknown }
    if (Array.isArray(rawHeaders)) rawHeaders.push(CACHE_STATUS, Buffer.from(status))
    return { ...headers, 'cache-status': before === undefined ? status : `${String(before)}, ${status}` }
  }

  /** Parameters of `Cache-Status`. A response from neither the origin nor the store is undici's own 504. */
  #status(): string {
    if (this.#isForwarded) return `fwd=${this.#whyForwarded()}${this.#hasWaited ? '; collapsed=?0' : ''}`
    return this.#found === undefined ? 'detail=only-if-cached' : 'hit'
  }

  #whyForwarded(): 'bypass' | 'method' | 'miss' | 'request' | 'stale' {
    if (!this.#around.methods.has(this.#opts!.method)) return 'method'
    if (this.#wantsNothing) return 'request'
    if (!this.wasAsked || this.isUnlike) return 'bypass'
    const found = this.#found
    if (found === undefined) return 'miss'
    return found.staleAt < Date.now() || found.cacheControlDirectives['no-cache'] === true ? 'stale' : 'request'
  }
}

/** The controller of a client whose request waits for the store or for another request. */
class Waiting implements Client {
  readonly #gaveUp: (reason: Error) => void
  readonly #gone: Promise<undefined>
  #leave: (nothing: undefined) => void = () => undefined
  #controller: Controller | undefined
  /** Shared with the client; undici's own context, such as the history of redirects, is merged in later. */
  readonly context: Record<string, unknown> = {}
  readonly rawHeaders = null
  readonly rawTrailers = null
  #isPaused = false
  reason: Error | null = null

  constructor(gaveUp: (reason: Error) => void) {
    this.#gaveUp = gaveUp
    this.#gone = new Promise((resolve) => { this.#leave = resolve })
  }

  get asController(): Controller {
    return this as unknown as Controller
  }

  /** Whether the client gave up before undici began. */
  get isGone(): boolean {
    return this.#controller === undefined && this.reason !== null
  }

  get aborted(): boolean {
    return this.#controller?.aborted ?? this.reason !== null
  }

  get paused(): boolean {
    return this.#controller?.paused ?? this.#isPaused
  }

  /** The result of `work`, or `undefined` once the client has given up; the work itself continues. */
  until<T>(work: T | Promise<T>): Promise<T | undefined> {
    return this.isGone ? Promise.resolve(undefined) : Promise.race([work, this.#gone])
  }

  pause(): void {
    this.#isPaused = true
    this.#controller?.pause()
  }

  resume(): void {
    this.#isPaused = false
    this.#controller?.resume()
  }

  abort(reason?: Error): void {
    if (this.#controller !== undefined) return this.#controller.abort(reason as Error)
    if (this.reason !== null) return
    this.reason = reason ?? new errors.RequestAbortedError()
    this.#leave(undefined)
    this.#gaveUp(this.reason)
  }

  /** Hands the client over to undici's controller, when undici begins or restarts the request. */
  goOn(controller: Controller, context: unknown): void {
    if (this.isGone) return controller.abort(this.reason!)
    Object.assign(this.context, context)
    this.#controller = controller
    if (this.#isPaused) controller.pause()
  }
}

/** A controller for a response that no connection delivers. */
function controllerOf(abort: (reason?: Error) => void = () => undefined): Controller {
  const controller = { abort, pause: () => undefined, resume: () => undefined, aborted: false, paused: false, reason: null, rawHeaders: [], rawTrailers: [] }
  return controller as unknown as Controller
}

function hasAny(headers: CacheKey['headers'], names: ReadonlySet<string>): boolean {
  for (const name in headers) if (names.has(name)) return true
  return false
}
