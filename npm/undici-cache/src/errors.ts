// Errors of operations on the store. These errors never reach a request: `errorCallback` gets them, and the look-up is a miss.

import { clearTimeout, setImmediate, setTimeout } from './timers.js'

export class StoreUnavailableError extends Error {
  override readonly name = 'StoreUnavailableError'
  readonly code = 'LARDER_STORE_UNAVAILABLE'
}

export class StoreTimeoutError extends Error {
  override readonly name = 'StoreTimeoutError'
  readonly code = 'LARDER_STORE_TIMEOUT'
}

/** Names of error replies in ioredis, iovalkey and node-redis. */
const ANSWERS = new Set(['ReplyError', 'ErrorReply', 'SimpleError', 'BlobError'])

export function asError(value: unknown): Error {
  return value instanceof Error ? value : new Error(String(value))
}

/** Whether an error says that the server is no longer a master. */
export function isOfNoMaster(error: unknown): boolean {
  return /^(READONLY|MASTERDOWN)/.test(asError(error).message)
}

/** Whether the server that holds the key refused the command, so that an immediate retry is useless. */
export function isRefusal(error: Error): boolean {
  return isAnswer(error) && !isMoved(error) && !isOfNoMaster(error)
}

/** Whether an error is a reply from a server. */
export function isAnswer(error: unknown): boolean {
  const { name, constructor } = asError(error)
  return ANSWERS.has(name) || ANSWERS.has(constructor.name)
}

/** Whether an error says that the key is on another node. */
export function isMoved(error: unknown): boolean {
  return /^(MOVED|ASK|CLUSTERDOWN|TRYAGAIN)/.test(asError(error).message)
}

/**
 * The outcome of `work`, or an error after `ms` milliseconds. After a process was suspended, timers fire before pending input is read. The timeout waits for
 * that input, so that the store isn't blamed for the pause.
 */
export async function within<T>(work: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    const end = (): void => reject(new StoreTimeoutError(`no reply from the store within ${ms} ms`))
    timer = setTimeout(() => setImmediate(end), ms)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}
