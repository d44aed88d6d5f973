// The connections to one server: one for commands, one for invalidation messages if copies are kept, and more for changes, opened when first needed. The
// connections form a generation: all end together, and everything learned through them is discarded. Nothing is sent twice, and nothing waits for a connection:
// without one, operations fail immediately.

import { Redis, type RedisOptions } from 'iovalkey'
import { type Change, Changes, type ChangesSettings } from './changes.js'
import { type Command, end, exec } from './commands.js'
import { asError, isAnswer, isOfNoMaster, StoreTimeoutError, StoreUnavailableError, within } from './errors.js'
import { guardSockets } from './sockets.js'
import { clearInterval, clearTimeout, setInterval, setTimeout } from './timers.js'

export interface LinkSettings {
  readonly client: () => Promise<RedisOptions>
  /** Whether the server reports changes of keys that were read. */
  readonly tracking: boolean
  readonly timeoutMs: number
  readonly changes: ChangesSettings
}

export interface LinkEvents {
  /** The server reports that these keys have changed; `undefined`: any may have. */
  changed(names: readonly string[] | undefined): void
  up(link: Link): void
  down(link: Link, reason: Error): void
}

const INVALIDATIONS = '__redis__:invalidate'
/** Connecting takes several round trips, each of which may be slow on a busy machine. */
const CONNECT_MS_MIN = 1000
/** If a connection has no answer for this long, it is closed, which discards everything learned through it. */
const VERIFIED_MS = 2000
const PAUSE_MS_MIN = 50
const PAUSE_MS_MAX = 1000
const IN_FLIGHT_MAX = 10_000
/** Clock differences up to this limit are ignored. */
const CLOCK_DOUBT_MS = 100

interface Connections {
  readonly control: Redis
  readonly pushes: Redis | undefined
}

export class Link {
  readonly #settings: LinkSettings
  readonly #events: LinkEvents
  readonly #changes: Changes
  /** The settings of the last connection. */
  #client: RedisOptions = {}
  #connections: Connections | undefined
  /** The connections of the current attempt. */
  readonly #dialed = new Set<Redis>()
  #inFlight = 0
  /** The time of the last answer, by the monotonic clock. */
  #answeredMs = 0
  /** Whether a command has timed out and nothing has answered since. New commands then fail without waiting for another timeout. */
  #isSilent = false
  #failures = 0
  #closed = false
  #retry: NodeJS.Timeout | undefined
  #heartbeat: NodeJS.Timeout | undefined
  #settled: Promise<void>
  /** How far the server's clock is ahead. */
  clockAheadMs = 0

  constructor(settings: LinkSettings, events: LinkEvents) {
    this.#settings = settings
    this.#events = events
    this.#changes = new Changes(settings.changes, settings.timeoutMs, (ended) => this.#openAnother(ended))
    this.#settled = this.#connect()
  }

  get isUp(): boolean {
    return this.#connections !== undefined
  }

  get isTracking(): boolean {
    return this.#settings.tracking
  }

  get timeoutMs(): number {
    return this.#settings.timeoutMs
  }

  get #connectMs(): number {
    return Math.max(CONNECT_MS_MIN, this.timeoutMs)
  }

  /** Waits for the first attempt to connect, whatever its outcome. */
  settled(): Promise<void> {
    return this.#settled
  }

  /** Sends commands as one pipeline, and returns the replies. Rejects with the first error reply. */
  async ask(commands: readonly Command[], timeoutMs = this.#settings.timeoutMs): Promise<unknown[]> {
    const control = this.#control()
    this.#inFlight += 1
    control.stream.ref()
    const sentMs = performance.now()
    const answers = exec(control, commands)
    answers.then(() => this.#answered(), (error: unknown) => { if (isAnswer(error)) this.#answered() })
    try {
      return await within(answers, timeoutMs)
    } catch (error) {
      if (error instanceof StoreTimeoutError && this.#answeredMs < sentMs) this.#isSilent = true
      this.#blame(error)
      throw error
    } finally {
      this.#inFlight -= 1
      if (this.#inFlight === 0) this.#connections?.control.stream.unref()
    }
  }

  /** Runs commands in MULTI and EXEC, sent as one pipeline. */
  async transaction(commands: readonly Command[]): Promise<unknown[]> {
    const answers = await this.ask([['MULTI'], ...commands, ['EXEC']])
    const outcome = answers.at(-1)
    if (!Array.isArray(outcome)) throw new StoreUnavailableError('the server refused a transaction')
    return outcome
  }

  /** Makes a change if nothing else changes the keys it depends on: see `Changes`. */
  change(change: Change): Promise<boolean> {
    return this.#changes.make(change)
  }

  /** Like `change`, but rejects if too many changes are waiting already. */
  changeIfRoom(change: Change): Promise<boolean> {
    if (this.#changes.isFull) return Promise.reject(new StoreUnavailableError('too many changes wait for the store'))
    return this.change(change)
  }

  /**
   * Opens another connection and listens to these channels, until the connection ends or the returned function is called. The connection keeps the process
   * alive, since listening may be all that the process does.
   */
  async listen(channels: readonly string[], heard: (channel: string, message: string) => void, ended: () => void): Promise<() => void> {
    const redis = await this.#open(ended)
    redis.on('message', heard)
    await redis.subscribe(...channels)
    return () => end(redis)
  }

  /** The number of the database, which is part of the channel names of key events. */
  get database(): number {
    return this.#client.db ?? 0
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#retry)
    this.#dialed.forEach(end)
    this.#disconnect()
  }

  async #openAnother(ended: () => void): Promise<Redis> {
    this.#control()
    return this.#open(ended)
  }

  #control(): Redis {
    if (this.#connections === undefined) throw new StoreUnavailableError('the store is not connected')
    if (this.#isSilent) throw new StoreUnavailableError('the store does not answer')
    if (this.#inFlight >= IN_FLIGHT_MAX) throw new StoreUnavailableError('too many operations wait for the store')
    return this.#connections.control
  }

  async #connect(): Promise<void> {
    const dialing = this.#dial()
    try {
      const connections = await within(dialing, this.#connectMs)
      if (this.#closed) return disconnect(connections)
      this.#connections = connections
      // The connections keep the process alive only while it waits for an answer.
      for (const redis of [connections.control, connections.pushes]) redis?.stream.unref()
      this.#isSilent = false
      this.#failures = 0
      this.#heartbeat = setInterval(() => this.#beat(connections), VERIFIED_MS / 4).unref()
      this.#events.up(this)
    } catch (error) {
      dialing.then(disconnect, () => undefined)
      this.#dialed.forEach(end)
      this.#lost(asError(error))
    }
  }

  async #dial(): Promise<Connections> {
    const opened: Redis[] = []
    const open = (): Promise<Redis> => this.#open((redis, reason) => this.#lostOf(redis, reason), (redis) => {
      opened.push(redis)
      this.#dialed.add(redis)
    })
    try {
      const [control, pushes] = await Promise.all([open(), this.#settings.tracking ? open() : undefined])
      await this.#measureClock(control)
      if (pushes) await this.#followInvalidations(control, pushes)
      return { control, pushes }
    } catch (error) {
      for (const redis of opened) end(redis)
      throw error
    } finally {
      for (const redis of opened) this.#dialed.delete(redis)
    }
  }

  /** Opens a connection that doesn't reconnect by itself, since invalidation messages would be lost unnoticed. */
  async #open(ended: (redis: Redis, reason: Error) => void, made: (redis: Redis) => unknown = () => undefined): Promise<Redis> {
    this.#client = await this.#settings.client()
    const redis = guardSockets(new Redis({
      connectTimeout: this.#connectMs,
      ...this.#client,
      keyPrefix: '',
      lazyConnect: true,
      enableOfflineQueue: false,
      enableReadyCheck: false,
      autoResubscribe: false,
      autoResendUnfulfilledCommands: false,
      enableAutoPipelining: false,
      reconnectOnError: null,
      stringNumbers: false,
      retryStrategy: () => null,
    }))
    made(redis)
    let last: Error = new StoreUnavailableError('the store has closed the connection')
    redis.on('error', (error: Error) => { last = error })
    redis.on('end', () => ended(redis, last))
    await redis.connect().catch((error: unknown) => Promise.reject(last instanceof StoreUnavailableError ? error : last))
    return redis
  }

  async #measureClock(control: Redis): Promise<void> {
    const sent = Date.now()
    const [answer] = await exec(control, [['TIME']])
    if (!Array.isArray(answer)) return
    const [seconds, microseconds] = answer.map(Number)
    const ahead = Math.round((seconds ?? 0) * 1000 + (microseconds ?? 0) / 1000 - (sent + Date.now()) / 2)
    this.clockAheadMs = Math.abs(ahead) > CLOCK_DOUBT_MS ? ahead : 0
  }

  async #followInvalidations(control: Redis, pushes: Redis): Promise<void> {
    const id = await pushes.client('ID')
    pushes.on('messageBuffer', (_channel: Buffer, names: unknown) => this.#events.changed(namesIn(names)))
    await pushes.subscribe(INVALIDATIONS)
    await control.client('TRACKING', 'ON', 'REDIRECT', id, 'OPTIN')
  }

  #beat(connections: Connections): void {
    const pings = [connections.control, connections.pushes].map((redis) => redis?.ping())
    within(Promise.all(pings), VERIFIED_MS).then(() => this.#answered(), (error: unknown) => {
      if (this.#connections === connections) this.#lost(asError(error))
    })
  }

  #answered(): void {
    this.#answeredMs = performance.now()
    this.#isSilent = false
  }

  /** Leaves a server that is no longer a master. */
  #blame(error: unknown): void {
    if (isOfNoMaster(error)) this.#lost(asError(error))
  }

  #lostOf(redis: Redis, reason: Error): void {
    const { control, pushes } = this.#connections ?? {}
    if (redis === control || redis === pushes) this.#lost(reason)
  }

  #lost(reason: Error): void {
    if (this.#closed) return
    this.#disconnect()
    this.#events.down(this, reason)
    this.#failures += 1
    clearTimeout(this.#retry)
    const pauseMs = this.#pauseMs()
    if (pauseMs !== undefined) this.#retry = setTimeout(() => void this.#connect(), pauseMs).unref()
  }

  /** The pause before the next attempt; `undefined` if the application's `retryStrategy` says not to retry. */
  #pauseMs(): number | undefined {
    const { retryStrategy } = this.#client
    if (retryStrategy) return retryStrategy(this.#failures) ?? undefined
    return Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** this.#failures) * (0.5 + Math.random() / 2)
  }

  #disconnect(): void {
    const connections = this.#connections
    this.#connections = undefined
    clearInterval(this.#heartbeat)
    if (connections) disconnect(connections)
    this.#changes.drop()
  }
}

function disconnect({ control, pushes }: Connections): void {
  end(control)
  if (pushes) end(pushes)
}

function namesIn(message: unknown): string[] | undefined {
  return Array.isArray(message) ? message.map(String) : undefined
}
