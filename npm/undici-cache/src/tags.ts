// The tags of a response: those in the configured field, or else in the usual fields, and its groups (RFC 9875).

import type { HeaderMap } from './contract.js'

const BLANKS_SEPARATE = new Set(['surrogate-key', 'xkey'])

const NONE: readonly string[] = []
/** The fields that the gateway reads, too. */
const USUAL: readonly string[] = ['cache-tag', 'cache-tags', 'surrogate-key', 'xkey']

/** The tags of a response without duplicates. `storedBy` is the field configured in the process that stored it, if any. */
export function tagsOf(headers: HeaderMap, configured: string | undefined, storedBy: string | undefined): readonly string[] {
  const fields = [...configured === undefined ? USUAL : [configured], ...storedBy === undefined || storedBy === configured ? [] : [storedBy]]
  const named = fields.flatMap((field) => splitTags(field, valuesOf(headers, field)))
  const groups = valuesOf(headers, 'cache-groups').flatMap((value) => [...value.matchAll(/"((?:[^"\\]|\\.)*)"/g)])
  if (named.length + groups.length === 0) return NONE
  return [...new Set([...named, ...groups.map(([, group]) => group!.replace(/\\(.)/g, '$1'))])].filter((tag) => tag !== '')
}

function splitTags(tagsHeader: string, values: readonly string[]): string[] {
  const separator = BLANKS_SEPARATE.has(tagsHeader) ? /[\s,]+/ : /,/
  return values.flatMap((value) => value.split(separator)).map((tag) => tag.trim())
}

function valuesOf(headers: HeaderMap, name: string): readonly string[] {
  const value = headers[name]
  if (value === undefined) return []
  return Array.isArray(value) ? value : [value]
}
