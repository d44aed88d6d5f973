// Checks by the received fields whether a response may be shared. undici's parsing changes between versions, and a version that reads a field too leniently
// would serve one user's page to all users of the store.

import type { CacheKey, CacheValue, HeaderMap } from './contract.js'

const DIRECTIVE = /^[\t ,]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([!#$%&'*+.^_`|~0-9A-Za-z-]+)))?[\t ]*(?=,|$)/
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const RESTRICTING = /private|no-store|no-cache/i

/** The value of a field; `undefined` if it is absent. */
function fieldOf(headers: HeaderMap, name: string): string | undefined {
  const values = Object.entries(headers).filter(([own]) => own.toLowerCase() === name).flatMap(([, value]) => value)
  return values.length === 0 ? undefined : values.join(', ')
}

/** Whether the response may be used for clients other than the one that requested it. */
export function isForAll(headers: HeaderMap, vary: CacheValue['vary']): boolean {
  if (fieldOf(headers, 'set-cookie') !== undefined) return false
  return !isRestricted(fieldOf(headers, 'cache-control') ?? '', headers) && isChosenBy(vary, fieldOf(headers, 'vary') ?? '')
}

/** Whether a response to a request with `Authorization` may be shared (RFC 9111, 3.5). */
export function isForOthersThan({ headers }: CacheKey, { cacheControlDirectives: directives = {} }: CacheValue): boolean {
  const hasAuthorization = Object.keys(headers ?? {}).some((name) => name.toLowerCase() === 'authorization')
  return !hasAuthorization || directives.public === true || directives['s-maxage'] !== undefined || directives['must-revalidate'] === true
}

/** Assumes the most restrictive directive if directives can't be parsed. */
function isRestricted(cacheControl: string, headers: HeaderMap): boolean {
  let left = cacheControl
  for (let read = DIRECTIVE.exec(left); read !== null; read = DIRECTIVE.exec(left)) {
    const [whole, name, quoted, plain] = read
    if (restricts(name!.toLowerCase(), quoted ?? plain, headers)) return true
    left = left.slice(whole.length)
  }
  return /[^\t ,]/.test(left) && RESTRICTING.test(cacheControl)
}

function restricts(name: string, argument: string | undefined, headers: HeaderMap): boolean {
  if (name === 'no-store') return true
  if (name !== 'private' && name !== 'no-cache') return false
  if (argument === undefined) return name === 'private'
  return !fieldNames(argument)?.every((field) => fieldOf(headers, field) === undefined)
}

/** The names in a list of fields; `undefined` if it is invalid. */
export function fieldNames(argument: string): string[] | undefined {
  const names = argument.split(',').map((name) => name.trim().toLowerCase())
  return names.every((name) => TOKEN.test(name)) ? names : undefined
}

/** Whether `vary` has all fields that selected the response. */
function isChosenBy(vary: CacheValue['vary'], names: string): boolean {
  return names.split(',').every((name) => name.trim() === '' || Object.hasOwn(vary ?? {}, name.trim().toLowerCase()))
}
