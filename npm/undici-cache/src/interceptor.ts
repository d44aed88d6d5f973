// undici's cache interceptor over this store, and around it: one request to the origin for all who want the same at the same time, in this process and in
// all others that share the store.

import { setTimeout as sleep } from 'node:timers/promises'
import { type Dispatcher, interceptors } from 'undici'
import type { CacheKey, CacheStore, CacheValue, GetResult, HeaderMap } from './contract.js'
import { parseCacheControl } from './freshness.js'
import type { LarderCacheStore } from './store.js'
import type { Outcome } from './turns.js'

type Dispatch = Dispatcher['dispatch']
type Options = Dispatcher.DispatchOptions
type Handler = Dispatcher.DispatchHandler
type CacheInterceptorOptions = NonNullable<Parameters<typeof interceptors.cache>[0]>

export interface LarderCacheOptions extends Omit<CacheInterceptorOptions, 'store'> {
  store: LarderCacheStore
  /** The name of this cache in `Cache-Status` of responses (RFC 9211). @default the field is not added */
  cacheStatus?: string
}

/** Fields with which a request wants something else than what answers everybody. */
const APART = new Set([
  'authorization', 'proxy-authorization', 'cookie', 'cache-control', 'pragma', 'range', 'if-match', 'if-none-match', 'if-modified-since', 'if-unmodified-since', 'if-range',
])

/** So long a request waits for another one of this process at most: that one's client may leave its body unread. */
const FLIGHT_WAIT_MS = 5000

/** The cache interceptor with requests collapsed across processes. Give it to `compose` in the place of `interceptors.cache`. */
export function larderCache(options: LarderCacheOptions): Dispatcher.DispatcherComposeInterceptor {
  const { store, cacheStatus, ...rest } = options
  const flights = new Map<string, Promise<void>>()
  const methods = new Set<string>(rest.methods ?? ['GET'])
  return (dispatch) => (opts, handler) => {
    const exchange = new Exchange({ store, flights, dispatch, methods, cacheOptions: rest, cacheStatus }, opts, handler)
    return methods.has(opts.method) ? exchange.start() : exchange.pass()
  }
}

interface Surroundings {
  readonly store: LarderCacheStore
  /** Requests to the origin under way in this process. */
  readonly flights: Map<string, Promise<void>>
  readonly dispatch: Dispatch
  /** Those whose responses are stored. */
  readonly methods: ReadonlySet<string>
  readonly cacheOptions: Omit<CacheInterceptorOptions, 'store'>
  readonly cacheStatus: string | undefined
}

class Exchange {
  readonly #around: Surroundings
  readonly #opts: Options
  readonly #handler: Handler
  readonly #key: CacheKey | undefined
  readonly #store: OfExchange
  #isForwarded = false
  #isCollapsed = false

  constructor(around: Surroundings, opts: Options, handler: Handler) {
    this.#around = around
    this.#opts = opts
    this.#handler = handler
    this.#key = keyOf(opts)
    this.#store = new OfExchange(around.store)
  }

  /** As it is: what the cache interceptor makes of it. */
  pass(found?: GetResult): boolean {
    this.#store.expect(found)
    return this.#dispatch(this.#decorated(this.#handler))
  }

  start(): boolean {
    const key = this.#key
    if (key === undefined) return this.pass()
    const found = this.#around.store.get(key)
    if (found !== undefined && !(found instanceof Promise)) return this.pass(found)
    this.#take(key, found).catch((error: unknown) => this.#fail(error))
    return true
  }

  async #take(key: CacheKey, found: Promise<GetResult | undefined> | undefined): Promise<void> {
    const result = await found
    if (result !== undefined) return void this.pass(result)
    const text = flightOf(key)
    const joined = this.#around.flights.get(text)
    if (joined === undefined) return this.#lead(key, text)
    this.#isCollapsed = true
    await Promise.race([joined, sleep(FLIGHT_WAIT_MS, undefined, { ref: false })])
    this.pass()
  }

  async #lead(key: CacheKey, text: string): Promise<void> {
    let land = (): void => undefined
    const flight = new Promise<void>((resolve) => { land = resolve })
    this.#around.flights.set(text, flight)
    const landed = (): void => {
      this.#around.flights.delete(text)
      land()
    }
    try {
      const turn = await this.#around.store.takeTurn(key)
      if (turn.result === undefined) return void this.#forward(key, turn.release, landed)
      landed()
      this.#isCollapsed = true
      this.pass(turn.result)
    } catch (error) {
      landed()
      throw error
    }
  }

  #forward(key: CacheKey, release: (outcome: Outcome) => Promise<void>, landed: () => void): void {
    const ended = (): void => {
      void this.#around.store.writtenOf(key).then(release).finally(landed)
    }
    this.#dispatch(new Watched(this.#decorated(this.#handler), { ended, isStoring: () => this.#store.isStoring }))
  }

  #dispatch(handler: Handler): boolean {
    const forward: Dispatch = (opts, inner) => {
      this.#isForwarded = true
      return this.#around.dispatch(opts, inner)
    }
    const cache = interceptors.cache({ ...this.#around.cacheOptions, store: this.#store as CacheInterceptorOptions['store'] & object })
    return cache(forward)(this.#opts, handler)
  }

  #decorated(handler: Handler): Handler {
    const { cacheStatus } = this.#around
    return cacheStatus === undefined ? handler : new WithStatus(handler, () => `${cacheStatus}; ${this.#status()}`)
  }

  /** Parameters of Cache-Status. What comes neither from the origin nor from the store is undici's 504. */
  #status(): string {
    if (this.#isForwarded) return `fwd=${this.#whyForwarded()}${this.#isCollapsed ? '; collapsed=?0' : ''}`
    return this.#store.found === undefined ? 'detail=only-if-cached' : 'hit'
  }

  #whyForwarded(): 'bypass' | 'method' | 'miss' | 'request' | 'stale' {
    if (!this.#around.methods.has(this.#opts.method)) return 'method'
    const { found, wasAsked } = this.#store
    if (!wasAsked) return isNoStore(this.#opts) ? 'request' : 'bypass'
    if (found === undefined) return 'miss'
    return found.staleAt < Date.now() || found.cacheControlDirectives['no-cache'] === true ? 'stale' : 'request'
  }

  #fail(error: unknown): void {
    this.#handler.onResponseError?.(controllerOf(() => undefined), error as Error)
  }
}

/** The store for one exchange: gives what was looked up already to the one who asks next, and remembers what was found and whether the response is stored. */
class OfExchange implements CacheStore {
  readonly #store: LarderCacheStore
  #expected: GetResult | undefined
  found: GetResult | undefined
  wasAsked = false
  isStoring = false

  constructor(store: LarderCacheStore) {
    this.#store = store
  }

  expect(found: GetResult | undefined): void {
    this.#expected = found
  }

  get(key: CacheKey): GetResult | Promise<GetResult | undefined> | undefined {
    const expected = this.#expected
    this.#expected = undefined
    if (expected !== undefined) this.#store.noteAsked(key, expected)
    const answer = expected ?? this.#store.get(key)
    return answer instanceof Promise ? answer.then((result) => this.#note(result)) : this.#note(answer)
  }

  #note(result: GetResult | undefined): GetResult | undefined {
    this.found = result
    this.wasAsked = true
    return result
  }

  createWriteStream(key: CacheKey, value: CacheValue): ReturnType<LarderCacheStore['createWriteStream']> {
    const writer = this.#store.createWriteStream(key, value)
    this.isStoring = writer !== undefined
    return writer
  }

  delete(key: CacheKey): Promise<void> {
    return this.#store.delete(key)
  }
}

type Arguments<Name extends keyof Handler> = Parameters<NonNullable<Handler[Name]>>

/** Passes everything on. */
class Decorated implements Handler {
  readonly #handler: Handler

  constructor(handler: Handler) {
    this.#handler = handler
  }

  onRequestStart(...args: Arguments<'onRequestStart'>): void {
    this.#handler.onRequestStart?.(...args)
  }

  onRequestUpgrade(...args: Arguments<'onRequestUpgrade'>): void {
    this.#handler.onRequestUpgrade?.(...args)
  }

  onResponseStart(...args: Arguments<'onResponseStart'>): void {
    this.#handler.onResponseStart?.(...args)
  }

  onResponseData(...args: Arguments<'onResponseData'>): void {
    this.#handler.onResponseData?.(...args)
  }

  onResponseEnd(...args: Arguments<'onResponseEnd'>): void {
    this.#handler.onResponseEnd?.(...args)
  }

  onResponseError(...args: Arguments<'onResponseError'>): void {
    this.#handler.onResponseError?.(...args)
  }
}

interface Watch {
  readonly ended: () => void
  readonly isStoring: () => boolean
}

/** Tells once that others have nothing more to wait for: the exchange is over, or its response is for this client alone. */
class Watched extends Decorated {
  #watch: Watch | undefined

  constructor(handler: Handler, watch: Watch) {
    super(handler)
    this.#watch = watch
  }

  override onResponseStart(...args: Arguments<'onResponseStart'>): void {
    if (args[1] >= 200 && this.#watch?.isStoring() === false) this.#end()
    super.onResponseStart(...args)
  }

  override onRequestUpgrade(...args: Arguments<'onRequestUpgrade'>): void {
    this.#end()
    super.onRequestUpgrade(...args)
  }

  override onResponseEnd(...args: Arguments<'onResponseEnd'>): void {
    this.#end()
    super.onResponseEnd(...args)
  }

  override onResponseError(...args: Arguments<'onResponseError'>): void {
    this.#end()
    super.onResponseError(...args)
  }

  #end(): void {
    this.#watch?.ended()
    this.#watch = undefined
  }
}

/** Of undici 7: it makes its own 504 by methods that are otherwise gone. */
interface OldHandler {
  onConnect(abort: (reason?: Error) => void): void
  onHeaders(statusCode: number, headers: readonly Buffer[], resume: () => void, message: string): boolean
  onComplete(trailers: readonly Buffer[]): void
  onError(error: Error): void
}

class WithStatus extends Decorated implements OldHandler {
  readonly #status: () => string
  #controller: Dispatcher.DispatchController | undefined

  constructor(handler: Handler, status: () => string) {
    super(handler)
    this.#status = status
  }

  override onResponseStart(...[controller, statusCode, headers, message]: Arguments<'onResponseStart'>): void {
    const [status, before] = [this.#status(), headers['cache-status']]
    // From here fetch has its fields, since undici 8.
    const { rawHeaders } = controller as { rawHeaders?: unknown }
    if (Array.isArray(rawHeaders)) rawHeaders.push(Buffer.from('cache-status'), Buffer.from(status))
    super.onResponseStart(controller, statusCode, { ...headers, 'cache-status': before === undefined ? status : `${String(before)}, ${status}` }, message)
  }

  onConnect(abort: (reason?: Error) => void): void {
    this.onRequestStart(this.#oldController(abort), {})
  }

  onHeaders(statusCode: number, _headers: readonly Buffer[], _resume: () => void, message: string): boolean {
    this.onResponseStart(this.#oldController(), statusCode, {}, message)
    return true
  }

  onComplete(): void {
    this.onResponseEnd(this.#oldController(), {})
  }

  onError(error: Error): void {
    this.onResponseError(this.#oldController(), error)
  }

  #oldController(abort: (reason?: Error) => void = () => undefined): Dispatcher.DispatchController {
    this.#controller ??= controllerOf(abort)
    return this.#controller
  }
}

/** For a response that is not on its way from anywhere. */
function controllerOf(abort: (reason?: Error) => void): Dispatcher.DispatchController {
  const controller = { abort, pause: () => undefined, resume: () => undefined, aborted: false, paused: false, reason: null, rawHeaders: [], rawTrailers: [] }
  return controller as unknown as Dispatcher.DispatchController
}

function isNoStore({ headers }: Options): boolean {
  const field = headersOf(headers)?.['cache-control']
  return parseCacheControl(String(field ?? ''))['no-store'] === true
}

function flightOf({ origin, path, method, headers }: CacheKey): string {
  return JSON.stringify([method, origin, path, Object.entries(headers ?? {}).sort()])
}

/** `undefined` for a request that is for itself. */
function keyOf(opts: Options): CacheKey | undefined {
  if (opts.origin === undefined || opts.query !== undefined || opts.body != null) return undefined
  const headers = headersOf(opts.headers)
  if (headers === undefined || Object.keys(headers).some((name) => APART.has(name))) return undefined
  return { origin: opts.origin.toString(), path: opts.path, method: opts.method, headers }
}

function headersOf(headers: Options['headers']): HeaderMap | undefined {
  if (headers == null) return {}
  if (Array.isArray(headers)) return Object.fromEntries(pairsOf(headers as string[]))
  if (Symbol.iterator in headers) return undefined
  const entries = Object.entries(headers as Record<string, string | string[] | undefined>)
  return Object.fromEntries(entries.flatMap(([name, value]) => value == null ? [] : [[name.toLowerCase(), value] as const]))
}

function pairsOf(flat: readonly string[]): [string, string][] {
  return Array.from({ length: flat.length >> 1 }, (_, at) => [String(flat[2 * at]).toLowerCase(), String(flat[2 * at + 1])])
}
