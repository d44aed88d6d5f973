// Channels of node:diagnostics_channel, for metrics and traces. Without subscribers, each channel costs one comparison.

import { channel } from 'node:diagnostics_channel'
import type { CacheEntry, CacheKey, GetResult } from './contract.js'

/** The outcome of a look-up, and its source: a local copy, the store, or neither because of an error. */
export interface LookUpMessage {
  readonly key: CacheKey
  readonly outcome: 'hit' | 'stale' | 'miss'
  readonly by: 'copy' | 'store' | 'error'
}

export const CHANNELS = {
  lookUp: 'larder:undici-cache:lookup',
  write: 'larder:undici-cache:write',
  error: 'larder:undici-cache:error',
} as const

const lookUps = channel(CHANNELS.lookUp)
const writes = channel(CHANNELS.write)
const errors = channel(CHANNELS.error)

export function tellLookUp(key: CacheKey, result: GetResult | undefined, by: LookUpMessage['by']): void {
  if (!lookUps.hasSubscribers) return
  const found = result && (result.staleAt > Date.now() ? 'hit' : 'stale')
  lookUps.publish({ key, outcome: found ?? 'miss', by } satisfies LookUpMessage)
}

export function tellWrite(entry: CacheEntry): void {
  if (writes.hasSubscribers) writes.publish(entry)
}

export function tellError(error: unknown): void {
  if (errors.hasSubscribers) errors.publish(error)
}
