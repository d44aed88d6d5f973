// A purge in the shared log: docs/internals/purge-log.md.

import { randomBytes } from 'node:crypto'
import { ByteReader, ByteWriter, invalid } from './bytes.js'

const MODES = ['hard', 'soft', 'refresh'] as const
export type PurgeMode = (typeof MODES)[number]

/** Selects responses with all of these properties. An empty selection is invalid. */
export interface Selection {
  readonly tags: readonly string[]
  readonly match: 'any' | 'all'
  readonly site?: string
  readonly host?: string
  readonly scheme?: 'http' | 'https'
  readonly prefix?: string
}

export type Purged = { readonly url: string } | { readonly selection: Selection } | 'everything'

export interface PurgeRecord {
  /** 32 hexadecimal digits. */
  readonly id: string
  readonly at: number
  readonly mode: PurgeMode
  readonly what: Purged
}

const VERSION = 1
const FORM_URL = 1
const FORM_SELECTION = 2
const FORM_EVERYTHING = 3
const ALL_TAGS = 1
const HAS_SITE = 2
const HAS_HOST = 4
const HTTP = 8
const HTTPS = 16
const HAS_PREFIX = 32
const FLAGS_KNOWN = 63

export const TAGS_MAX = 30
const TAG_BYTES_MAX = 1024
const URL_BYTES_MAX = 16_384
const SITE_BYTES_MAX = 255
const HOST_BYTES_MAX = 261
const PREFIX_BYTES_MAX = 8192

const CONTROLS = /[\u0000-\u001f\u007f]/

export function newPurge(what: Purged, at: number): PurgeRecord {
  return { id: randomBytes(16).toString('hex'), at, mode: 'hard', what }
}

export function encodePurge({ id, at, mode, what }: PurgeRecord): Buffer {
  checkPurged(what)
  const writer = new ByteWriter()
  writer.u8(VERSION)
  writer.u8(formOf(what))
  writer.u8(MODES.indexOf(mode) + 1)
  writer.u8(flagsOf(what))
  writer.size(at)
  writer.bytes(Buffer.from(id, 'hex'))
  if (what === 'everything') return writer.finish()
  if ('url' in what) writer.text(what.url)
  else writeSelection(writer, what.selection)
  return writer.finish()
}

export function decodePurge(bytes: Buffer): PurgeRecord {
  const reader = new ByteReader(bytes)
  if (reader.u8() !== VERSION) throw invalid('unknown purge version')
  const [form, mode, flags] = [reader.u8(), MODES[reader.u8() - 1], reader.u8()]
  if (mode === undefined) throw invalid('unknown purge mode')
  const [at, id] = [reader.size(), reader.take(16).toString('hex')]
  const what = readPurged(reader, form, flags)
  reader.end()
  checkPurged(what)
  return { id, at, mode, what }
}

function formOf(what: Purged): number {
  if (what === 'everything') return FORM_EVERYTHING
  return 'url' in what ? FORM_URL : FORM_SELECTION
}

function flagsOf(what: Purged): number {
  if (what === 'everything' || 'url' in what) return 0
  const { match, site, host, scheme, prefix } = what.selection
  return (match === 'all' ? ALL_TAGS : 0)
    | (site === undefined ? 0 : HAS_SITE)
    | (host === undefined ? 0 : HAS_HOST)
    | (scheme === 'http' ? HTTP : 0)
    | (scheme === 'https' ? HTTPS : 0)
    | (prefix === undefined ? 0 : HAS_PREFIX)
}

function readPurged(reader: ByteReader, form: number, flags: number): Purged {
  if (form === FORM_SELECTION) return { selection: readSelection(reader, flags) }
  if (flags !== 0) throw invalid('unknown purge flag')
  if (form === FORM_URL) return { url: readText(reader) }
  if (form === FORM_EVERYTHING) return 'everything'
  throw invalid('unknown purge form')
}

function writeSelection(writer: ByteWriter, { tags, site, host, prefix }: Selection): void {
  writer.u8(tags.length)
  for (const text of [...tags, site, host, prefix]) {
    if (text !== undefined) writer.text(text)
  }
}

function readSelection(reader: ByteReader, flags: number): Selection {
  if ((flags & ~FLAGS_KNOWN) !== 0 || (flags & HTTP && flags & HTTPS)) throw invalid('unknown purge flag')
  const tags = reader.list(reader.u8(), () => readText(reader))
  const site = flags & HAS_SITE ? { site: readText(reader) } : {}
  const host = flags & HAS_HOST ? { host: readText(reader) } : {}
  const prefix = flags & HAS_PREFIX ? { prefix: readText(reader) } : {}
  return { tags, match: flags & ALL_TAGS ? 'all' : 'any', ...site, ...host, ...schemeIn(flags), ...prefix }
}

function schemeIn(flags: number): { scheme?: 'http' | 'https' } {
  if (flags & HTTP) return { scheme: 'http' }
  return flags & HTTPS ? { scheme: 'https' } : {}
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function readText(reader: ByteReader): string {
  try {
    return utf8.decode(reader.take(reader.u16()))
  } catch {
    throw invalid('a purge ends too early, or is not valid text')
  }
}

function checkPurged(what: Purged): void {
  if (what === 'everything') return
  if ('url' in what) checkUrl(what.url)
  else checkSelection(what.selection)
}

function checkUrl(url: string): void {
  checkText('a URL', url, URL_BYTES_MAX)
  if (!url.includes('://') || /[#\s]/.test(url)) throw invalid('a URL must have a scheme, and neither blanks nor a fragment')
}

function checkSelection({ tags, match, site, host, scheme, prefix }: Selection): void {
  if (tags.length === 0 && match === 'any' && [site, host, prefix].every((text) => text === undefined)) {
    throw invalid('a selection must not be empty')
  }
  if (tags.length > TAGS_MAX) throw invalid(`expected at most ${TAGS_MAX} tags, found ${tags.length}`)
  if (match === 'all' && tags.length < 2) throw invalid('expected at least two tags with match "all"')
  if (scheme !== undefined && host === undefined) throw invalid('a scheme requires a host')
  for (const tag of tags) checkText('a tag', tag, TAG_BYTES_MAX)
  if (site !== undefined) checkLength('a site', site, SITE_BYTES_MAX)
  if (host !== undefined) checkHost(host)
  if (prefix !== undefined) checkPrefix(prefix)
}

function checkHost(host: string): void {
  checkText('a host', host, HOST_BYTES_MAX)
  if (/[^!-~]|[A-Z/?#@]/.test(host)) throw invalid('a host is a name in lower case or an address, with an optional port')
}

function checkPrefix(prefix: string): void {
  checkText('a prefix', prefix, PREFIX_BYTES_MAX)
  if (!prefix.startsWith('/') || /[ ?#]/.test(prefix)) throw invalid('a prefix must be a path without blanks and query')
}

function checkText(what: string, text: string, bytesMax: number): void {
  checkLength(what, text, bytesMax)
  if (CONTROLS.test(text)) throw invalid(`${what} can't contain control characters`)
}

function checkLength(what: string, text: string, bytesMax: number): void {
  const bytes = Buffer.byteLength(text)
  if (bytes === 0 || bytes > bytesMax) throw invalid(`expected ${what} of 1 to ${bytesMax} bytes, found ${bytes}`)
}
