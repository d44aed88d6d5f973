// An index of purges, as far as the log was read: names with the last purge of each, and a bounded list of all other purges. A full index purges too much,
// never too little.

import type { PurgeRecord, Selection } from './purge-record.js'
import { pathOf, splitPort, targetOfUrl, type Target } from './key.js'

/** The properties of a stored response that purges select by. */
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
  /** URLs, and tags within a scope, in the order in which they were last named. */
  readonly #names = new Map<string, Mark>()
  /** The eviction hand: every name before it has been removed or moved to the end. */
  #hand = this.#names.entries()
  #clauses: Mark[] = []
  /** Responses requested before this place count as purged. */
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

  /** Adds the record that ends at `end`; `undefined` for a record that can't be decoded. */
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

  /** Judges a response that was requested at this place. */
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
    // Without this, soft purges of everything would fill the list, and its oldest clause becomes hard.
    if (isAllSoft(mark)) this.#clauses = this.#clauses.filter((earlier) => !isAllSoft(earlier))
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

function isAllSoft({ purge }: Mark): boolean {
  return purge.what === 'everything' && purge.mode !== 'hard'
}

function verdictOf(marks: readonly Mark[]): Verdict {
  if (marks.length === 0) return 'current'
  if (marks.some(({ purge }) => purge.mode === 'hard')) return 'purged'
  return { staleSince: Math.min(...marks.map(({ purge }) => purge.at)) }
}

/** The names under which a purge is indexed; `undefined` if it belongs in the list. Soft purges do, so that they never hide a hard one. */
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

/** Leaves out scheme and port, since a purge from the internal network may not know those that clients use. */
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

/** Whether a selected host matches a target. A port selects only that port. A scheme without a port selects only the scheme's default port. */
function isHost(host: string, scheme: string | undefined, target: Target): boolean {
  if (scheme !== undefined && scheme !== target.scheme) return false
  const [wanted, own] = [splitPort(host), splitPort(target.authority)]
  if (wanted.host !== own.host) return false
  const ownPort = own.port || DEFAULT_PORTS[target.scheme]
  if (wanted.port !== '') return wanted.port === ownPort
  return scheme === undefined || ownPort === DEFAULT_PORTS[scheme]
}
