// Channels of node:diagnostics_channel, for metrics and traces. Where nobody listens they cost a comparison.

import { channel } from 'node:diagnostics_channel'
import type { CacheEntry, CacheKey, GetResult } from './contract.js'

/** A look-up was answered: by a copy in this process, by the store, or not because of an error. */
export interface LookUpMessage {
  readonly key: CacheKey
  readonly outcome: 'hit' | 'stale' | 'miss'
  readonly by: 'copy' | 'store' | 'error'
}

const lookUps = channel('larder:undici-cache:lookup')
const writes = channel('larder:undici-cache:write')
const errors = channel('larder:undici-cache:error')

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
