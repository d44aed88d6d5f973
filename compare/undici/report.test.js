// Tests of the report with fixed figures.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { budgetsOf, improvementTable, median, medians, page, percentile, shownIn } from './report.js'

const row = (perSecond) => ({ perSecond, cpuUs: 100, average: 1, p50: 1, p975: 2, p99: 3, total: 10 })

const RESULTS = {
  about: { date: '2026-01-02', commit: 'abc', machine: '2 × CPU', node: '20', undici: '7', peer: '1', store: 'Redis 7' },
  parameters: { rounds: 5, seconds: 30, unrelatedKeys: 50_000, lookUps: 500, variants: 8, entries: 10_000 },
  load: { memory: row(1000), 'peer-redis-tracking': row(1000), 'redis-tracking': row(1100) },
  lookUps: { 'peer-redis-only': { average: 3, p50: 3, p95: 3, p99: 3 }, 'redis-only': { average: 1, p50: 1, p95: 1, p99: 1 } },
  memory: { 'peer-redis-tracking': { used: 50_000_000, rss: 1 }, 'redis-tracking': { used: 40_000_000, rss: 1 } },
  purges: {},
}

test('the median is the middle, or between the two there', () => {
  for (const [values, expected] of [[[3, 1, 2], 2], [[4, 1, 2, 3], 2.5], [[1, undefined], 1], [[], undefined]]) assert.equal(median(values), expected)
  assert.deepEqual(medians([{ a: 1, b: 9 }, { a: 2, b: 7 }, { a: 9, b: 8 }]), { a: 2, b: 8 })
})

test('a percentile is a value that was measured', () => {
  const hundred = Array.from({ length: 100 }, (_, at) => 100 - at)
  for (const [values, percent, expected] of [[hundred, 95, 95], [hundred, 99, 99], [[7], 95, 7], [[1, 2], 50, 1], [[], 95, undefined]]) assert.equal(percentile(values, percent), expected)
})

test('each cache is compared with none', () => {
  const table = improvementTable({ none: { ...row(100), average: 10, cpuUs: 400 }, memory: row(1000) })
  assert.ok(table.endsWith("| undici's memory store | 10.0 x | 10.0 x | 4.0 x |"), table)
  for (const load of [{}, { memory: row(1) }, { none: row(1) }]) assert.equal(improvementTable(load), '')
})

test('budgets are met from their least on, and left out where a side is missing', () => {
  assert.deepEqual(budgetsOf(RESULTS).map(({ least, ratio }) => ratio >= least), [true, false, true, true])
  assert.equal(budgetsOf({ ...RESULTS, load: {}, memory: {} }).length, 1)
})

test('a page has what was measured, and one that shows some of it keeps the rest', () => {
  const whole = page(RESULTS)
  for (const part of ['2026-01-02, commit abc', '| @larder/undici-cache, tracking | 1,100 |', '**missed**', '| 3.00 |  | met |', '| 1.10 | 1.00 | met |', '4,000 |']) assert.ok(whole.includes(part), part)
  assert.ok(!whole.includes('## Purges'))
  const shown = shownIn('before\n<!-- compare:begin -->\nold\n<!-- compare:end -->\nafter\n', RESULTS)
  assert.match(shown, /^before\n<!-- compare:begin -->\n\n\| cache[^]*commit abc[^]*\n<!-- compare:end -->\nafter\n$/)
  assert.ok(!shown.includes('old'))
  assert.throws(() => shownIn('nothing', RESULTS))
})
