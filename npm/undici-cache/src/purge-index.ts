// What was purged, as far as the log was read: names to the last place that speaks of them, and a bounded list of all else. A full index takes too
// much and never too little.

import type { PurgeRecord, Selection } from './purge-record.js'
import { pathOf, splitPort, targetOfUrl, type Target } from './key.js'

/** What a stored response is asked by. */
export interface Subject {
  readonly target: Target
  readonly tags: readonly string[]
}

export type Verdict = 'current' | 'purged' | { readonly staleSince: number }

interface Mark {
  end: number
  readonly purge: PurgeRecord
}

const NAMES_MAX = 32_768
const CLAUSES_MAX = 128
const DEFAULT_PORTS: Readonly<Record<string, string>> = { http: '80', https: '443' }

export class PurgeIndex {
  readonly #site: string
  /** URLs, and tags within a scope, the one that was named last behind all others. */
  readonly #names = new Map<string, Mark>()
  /** All before it have gone, or moved to the end. */
  #hand = this.#names.entries()
  #clauses: Mark[] = []
  /** Whatever is older than this place counts as purged. */
  #forgottenTo = 0
  #lastEnd = 0

  constructor(site: string) {
    this.#site = site
  }

  clear(): void {
    this.#names.clear()
    this.#hand = this.#names.entries()
    this.#clauses = []
    this.#forgottenTo = 0
    this.#lastEnd = 0
  }

  /** A record that ends at `end`; `undefined` for one that nobody here understands. */
  add(purge: PurgeRecord | undefined, end: number): void {
    this.#lastEnd = end
    if (purge === undefined) {
      this.#forgottenTo = end
      return
    }
    const names = namesOf(purge)
    if (names === undefined) this.#addClause({ end, purge })
    else for (const name of names) this.#addName(name, { end, purge })
  }

  /** What is left of a response that was asked for at this place. */
  judge(subject: Subject, offset: number): Verdict {
    if (offset >= this.#lastEnd) return 'current'
    if (offset < this.#forgottenTo) return 'purged'
    return verdictOf(this.#marksOf(subject, offset))
  }

  #addName(name: string, mark: Mark): void {
    this.#names.delete(name)
    this.#names.set(name, mark)
    if (this.#names.size <= NAMES_MAX) return
    const [oldest, { end }] = this.#oldest()
    this.#names.delete(oldest)
    this.#forgottenTo = Math.max(this.#forgottenTo, end)
  }

  #oldest(): [string, Mark] {
    const next = this.#hand.next()
    if (!next.done) return next.value
    this.#hand = this.#names.entries()
    return this.#hand.next().value!
  }

  #addClause(mark: Mark): void {
    this.#clauses.push(mark)
    if (this.#clauses.length <= CLAUSES_MAX) return
    this.#forgottenTo = Math.max(this.#forgottenTo, this.#clauses.shift()!.end)
  }

  #marksOf(subject: Subject, offset: number): Mark[] {
    const named = this.#names.size === 0 ? [] : namesThatTake(subject, this.#site).map((name) => this.#names.get(name))
    const marks = [...named, ...this.#clauses.filter(({ purge }) => takes(purge, subject, this.#site))]
    return marks.filter((mark): mark is Mark => mark !== undefined && mark.end > offset)
  }
}

function verdictOf(marks: readonly Mark[]): Verdict {
  if (marks.length === 0) return 'current'
  if (marks.some(({ purge }) => purge.mode === 'hard')) return 'purged'
  return { staleSince: Math.min(...marks.map(({ purge }) => purge.at)) }
}

/** Under which names a purge is found; `undefined` where it is looked at one by one. A soft purge never hides a hard one. */
function namesOf({ what, mode }: PurgeRecord): string[] | undefined {
  if (mode !== 'hard' || what === 'everything') return undefined
  if ('url' in what) {
    const target = targetOfUrl(what.url)
    return [target ? urlName(target) : `url ${what.url}`]
  }
  const { tags, match, prefix, site, host, scheme } = what.selection
  if (tags.length === 0 || match === 'all' || prefix !== undefined || host !== undefined) return undefined
  return tags.map((tag) => tagName(tag, site, scheme))
}

/** Scheme and port are left out: who purges from inside may know neither as clients see them. */
function urlName(target: Target): string {
  return `url ${splitPort(target.authority).host}${pathOf(target)}`
}

function tagName(tag: string, site = '', scheme = ''): string {
  return `tag ${site}\n${scheme}\n${tag}`
}

function namesThatTake({ target, tags }: Subject, site: string): string[] {
  return [urlName(target), ...tags.flatMap((tag) => [tagName(tag), tagName(tag, site)])]
}

function takes({ what }: PurgeRecord, subject: Subject, site: string): boolean {
  if (what === 'everything') return true
  if ('url' in what) return isUrl(what.url, subject.target)
  const { selection } = what
  return takesTags(selection, subject.tags)
    && (selection.site === undefined || selection.site === site)
    && (selection.host === undefined || isHost(selection.host, selection.scheme, subject.target))
    && (selection.prefix === undefined || subject.target.path.startsWith(selection.prefix))
}

function isUrl(url: string, target: Target): boolean {
  const purged = targetOfUrl(url)
  return purged !== undefined && urlName(purged) === urlName(target)
}

function takesTags({ tags, match }: Selection, own: readonly string[]): boolean {
  if (tags.length === 0) return true
  return match === 'all' ? tags.every((tag) => own.includes(tag)) : tags.some((tag) => own.includes(tag))
}

/** A port means that port alone. A scheme means no other port than the one that stands there, or its own. */
function isHost(host: string, scheme: string | undefined, target: Target): boolean {
  if (scheme !== undefined && scheme !== target.scheme) return false
  const [wanted, own] = [splitPort(host), splitPort(target.authority)]
  if (wanted.host !== own.host) return false
  const ownPort = own.port || DEFAULT_PORTS[target.scheme]
  if (wanted.port !== '') return wanted.port === ownPort
  return scheme === undefined || ownPort === DEFAULT_PORTS[scheme]
}
