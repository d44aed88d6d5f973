// Converts results to a page: tables, and the budgets that are met.

import { TITLES } from './titles.js'

export function median(values) {
  const sorted = values.filter((value) => value !== undefined).sort((one, other) => one - other)
  if (sorted.length === 0) return undefined
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** The nearest rank: the smallest value that `percent` of all values don't exceed. */
export function percentile(values, percent) {
  const sorted = Float64Array.from(values).sort()
  return sorted[Math.max(0, Math.ceil(sorted.length * percent / 100) - 1)]
}

/** The median of each number over all rounds. */
export function medians(rounds) {
  return Object.fromEntries(Object.keys(rounds[0]).map((name) => [name, median(rounds.map((round) => round[name]))]))
}

const digits = (value, count) => value === undefined ? '' : value.toLocaleString('en', { minimumFractionDigits: count, maximumFractionDigits: count })

function table(header, rows) {
  const lines = [header, header.map((_, at) => at === 0 ? '---' : '---:'), ...rows]
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}

export function loadTable(load) {
  const rows = Object.entries(load).map(([type, result]) => [
    TITLES[type], digits(result.perSecond, 0), digits(result.cpuUs, 0), digits(result.average, 2), digits(result.p50, 0), digits(result.p95, 2), digits(result.p975, 0),
    digits(result.p99, 0), digits(result.total, 0),
  ])
  return table(['cache', 'requests/s', 'CPU µs/request', 'average ms', 'p50 ms', 'p95 ms', 'p97.5 ms', 'p99 ms', 'requests'], rows)
}

/** Both tables of hits. */
export const loadTables = (load) => [loadTable(load), improvementTable(load)].filter(Boolean).join('\n\n')

/** The ratios of each cache to `none`; empty if `none` wasn't measured. */
export function improvementTable({ none, ...load }) {
  if (none === undefined || Object.keys(load).length === 0) return ''
  const times = (ratio) => `${digits(ratio, 1)} x`
  const rows = Object.entries(load).map(([type, result]) => [
    TITLES[type], times(result.perSecond / none.perSecond), times(none.average / result.average), times(none.cpuUs / result.cpuUs),
  ])
  return table(['against no cache', 'requests/s', 'average time', 'CPU time'], rows)
}

function lookUpTable(lookUps) {
  const rows = Object.entries(lookUps).map(([type, { average, p50, p95, p99 }]) => [TITLES[type], ...[average, p50, p95, p99].map((ms) => digits(ms, 3))])
  return table(['cache', 'average ms', 'p50 ms', 'p95 ms', 'p99 ms'], rows)
}

function memoryTable(memory, entries) {
  const rows = Object.entries(memory).map(([type, { used, rss }]) => [TITLES[type], digits(used / 2 ** 20, 1), digits(used / entries, 0), digits(rss / 2 ** 20, 1)])
  return table(['cache', 'MiB', 'bytes/entry', 'resident MiB'], rows)
}

function purgeTable(purges) {
  const rows = Object.entries(purges).map(([type, result]) => [
    TITLES[type], digits(result.purges, 0), digits(result.never, 0), digits(result.p50, 1), digits(result.p99, 1), digits(result.perSecond, 0),
  ])
  return table(['cache', 'purges', 'not seen in 3 s', 'p50 ms', 'p99 ms', 'requests/s of both'], rows)
}

/** A ratio and its required minimum; `undefined` if one side wasn't measured. */
function budget(title, least, one, other) {
  return one === undefined || other === undefined ? undefined : { title, least, ratio: one / other }
}

/** A budget of hits, with the ratio by processor time, which is less sensitive to other work on the machine. */
function hitBudget(title, least, one, other) {
  const found = budget(title, least, one?.perSecond, other?.perSecond)
  return found && { ...found, byCpu: other.cpuUs / one.cpuUs }
}

export function budgetsOf({ load, lookUps, memory }) {
  return [
    hitBudget("tracked hits per second, to undici's memory store", 1, load['redis-tracking'], load.memory),
    hitBudget('tracked hits per second, to undici-cache-redis', 1.2, load['redis-tracking'], load['peer-redis-tracking']),
    budget('look-ups among unrelated keys, redis only: how many times as fast as undici-cache-redis', 3, lookUps['peer-redis-only']?.average, lookUps['redis-only']?.average),
    budget('memory of tracked entries: how many times less than undici-cache-redis', 1, memory['peer-redis-tracking']?.used, memory['redis-tracking']?.used),
  ].filter((found) => found !== undefined)
}

function budgetTable(budgets) {
  const rows = budgets.map(({ title, least, ratio, byCpu }) => [title, `≥ ${digits(least, 1)}`, digits(ratio, 2), digits(byCpu, 2), ratio >= least ? 'met' : '**missed**'])
  return table(['budget', 'least', 'measured', 'by CPU time', ''], rows)
}

function madeBy({ date, commit, machine, node, undici, peer, store }) {
  return `${date}, commit ${commit}, ${machine}, Node.js ${node}, undici ${undici}, undici-cache-redis ${peer}, ${store}`
}

const [BEGIN, END] = ['<!-- compare:begin -->', '<!-- compare:end -->']

/** A page with hits and budgets between its two marker comments. */
export function shownIn(text, results) {
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)]
  if (begin < 0 || end < begin) throw new Error(`the page has no "${BEGIN}" and "${END}"`)
  const shown = ['', '', loadTable(results.load), '', budgetTable(budgetsOf(results)), '', `${madeBy(results.about)}.`, ''].join('\n')
  return text.slice(0, begin + BEGIN.length) + shown + text.slice(end)
}

export function page(results) {
  const { about, parameters, load, lookUps, memory, purges } = results
  const { rounds, seconds, unrelatedKeys, lookUps: count, variants, entries } = parameters
  const sections = [
    ['Budgets', '', budgetTable, budgetsOf(results)],
    ['Hits', `10 connections over 503 URLs, ${rounds} interleaved rounds of ${seconds} s each, medians.`, loadTables, load],
    ['Look-ups that ask the store', `${count} one after the other, ${variants} variants for each URL, ${digits(unrelatedKeys, 0)} unrelated keys on the server.`, lookUpTable, lookUps],
    ['Memory', `${digits(entries, 0)} entries of 3.5 kB in one process, after a garbage collection.`, (found) => memoryTable(found, entries), memory],
    ['Purges', `Two processes under load over one store, for ${seconds} s: from the end of \`deleteTags\` in one until the other one answers with the change.`, purgeTable, purges],
  ]
  return [
    '# Caches for undici',
    `${madeBy(about)}. Made by \`make compare WHAT=undici\`: [what is measured](../undici/README.md).`,
    ...sections.filter(([, , , found]) => Object.keys(found).length > 0).flatMap(([title, how, table, found]) => [`## ${title}`, ...how ? [how] : [], table(found)]),
  ].join('\n\n') + '\n'
}
