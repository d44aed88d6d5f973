// What goes wrong between this process and the store. None of it reaches a request: it is given to `errorCallback`, and the look-up is a miss.

import { clearTimeout, setImmediate, setTimeout } from './timers.js'

export class StoreUnavailableError extends Error {
  override readonly name = 'StoreUnavailableError'
  readonly code = 'LARDER_STORE_UNAVAILABLE'
}

export class StoreTimeoutError extends Error {
  override readonly name = 'StoreTimeoutError'
  readonly code = 'LARDER_STORE_TIMEOUT'
}

/** Errors that a server has answered, as ioredis, iovalkey and node-redis call them. */
const ANSWERS = new Set(['ReplyError', 'ErrorReply', 'SimpleError', 'BlobError'])

export function asError(value: unknown): Error {
  return value instanceof Error ? value : new Error(String(value))
}

/** Whether a server says that it is a master no longer. */
export function isOfNoMaster(error: unknown): boolean {
  return /^(READONLY|MASTERDOWN)/.test(asError(error).message)
}

/** Whether a server that has what was asked for won't do it: to ask again at once is of no use. */
export function isRefusal(error: Error): boolean {
  return isAnswer(error) && !isMoved(error) && !isOfNoMaster(error)
}

/** Whether a server has answered at all, if with an error. */
export function isAnswer(error: unknown): boolean {
  const { name, constructor } = asError(error)
  return ANSWERS.has(name) || ANSWERS.has(constructor.name)
}

/** Whether an answer says that a key lies on another node. */
export function isMoved(error: unknown): boolean {
  return /^(MOVED|ASK|CLUSTERDOWN|TRYAGAIN)/.test(asError(error).message)
}

/**
 * The outcome of `work`, or an error after `ms` milliseconds. After a process has stood still, timers come before what has arrived meanwhile: that is read first, or
 * the store would be blamed for it.
 */
export async function within<T>(work: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    const end = (): void => reject(new StoreTimeoutError(`the store has not answered within ${ms} ms`))
    timer = setTimeout(() => setImmediate(end), ms)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}
