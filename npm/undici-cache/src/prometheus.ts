/**
 * Metrics for Prometheus with prom-client, an optional peer dependency: `@larder/undici-cache/prometheus`.
 *
 * @packageDocumentation
 */

import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { Counter, Gauge, register as defaultRegister, type Registry } from 'prom-client'
import { CHANNELS, type LookUpMessage } from './diagnostics.js'
import type { LarderCacheStore } from './store.js'

export interface MetricsOptions {
  /** The registry of the metrics. @default the global registry of prom-client */
  register?: Registry
  /** The stores whose local copies are counted. @default none */
  stores?: readonly LarderCacheStore[]
}

const LOOKUPS = 'larder_undici_cache_lookups_total'
const WRITES = 'larder_undici_cache_writes_total'
const ERRORS = 'larder_undici_cache_errors_total'
const LOCAL_ENTRIES = 'larder_undici_cache_local_entries'
const LOCAL_BYTES = 'larder_undici_cache_local_bytes'

/**
 * Counts the look-ups, writes and errors of all stores of this process from now on. The returned function stops counting, and removes the metrics.
 *
 * Metrics: `larder_undici_cache_lookups_total{outcome,by}`, `larder_undici_cache_writes_total`, `larder_undici_cache_errors_total`, and for `stores`
 * `larder_undici_cache_local_entries` and `larder_undici_cache_local_bytes`.
 */
export function collectMetrics({ register = defaultRegister, stores = [] }: MetricsOptions = {}): () => void {
  const registers = [register]
  const lookUps = new Counter({ name: LOOKUPS, help: 'Look-ups by outcome and source', labelNames: ['outcome', 'by'], registers })
  const writes = new Counter({ name: WRITES, help: 'Responses stored', registers })
  const errors = new Counter({ name: ERRORS, help: 'Store errors; none fails a request', registers })
  const gauge = (name: string, help: string, measure: (store: LarderCacheStore) => number): Gauge => new Gauge({
    name, help, registers, collect() { this.set(stores.reduce((sum, store) => sum + measure(store), 0)) },
  })
  if (stores.length > 0) {
    gauge(LOCAL_ENTRIES, 'Local copies in this process', (store) => store.local.count)
    gauge(LOCAL_BYTES, 'Memory of local copies in this process in bytes', (store) => store.local.size)
  }
  const heard: readonly (readonly [string, (message: unknown) => void])[] = [
    [CHANNELS.lookUp, (message) => lookUps.inc({ outcome: (message as LookUpMessage).outcome, by: (message as LookUpMessage).by })],
    [CHANNELS.write, () => writes.inc()],
    [CHANNELS.error, () => errors.inc()],
  ]
  for (const [channel, count] of heard) subscribe(channel, count)
  return () => {
    for (const [channel, count] of heard) unsubscribe(channel, count)
    for (const name of [LOOKUPS, WRITES, ERRORS, LOCAL_ENTRIES, LOCAL_BYTES]) register.removeSingleMetric(name)
  }
}
