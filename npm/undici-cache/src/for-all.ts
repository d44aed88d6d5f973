// Whether a response is for all, by its fields as they were received. undici's reading changes from version to version, and what it once read too leniently
// would be another user's page for everybody who shares the store.

import type { CacheKey, CacheValue, HeaderMap } from './contract.js'

const DIRECTIVE = /^[\t ,]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([!#$%&'*+.^_`|~0-9A-Za-z-]+)))?[\t ]*(?=,|$)/
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const RESTRICTING = /private|no-store|no-cache/i

/** `undefined` for a field that is not there. */
function fieldOf(headers: HeaderMap, name: string): string | undefined {
  const values = Object.entries(headers).filter(([own]) => own.toLowerCase() === name).flatMap(([, value]) => value)
  return values.length === 0 ? undefined : values.join(', ')
}

/** Whether the response may be used for others than the one who asked. */
export function isForAll(headers: HeaderMap, vary: CacheValue['vary']): boolean {
  if (fieldOf(headers, 'set-cookie') !== undefined) return false
  return !isRestricted(fieldOf(headers, 'cache-control') ?? '', headers) && isChosenBy(vary, fieldOf(headers, 'vary') ?? '')
}

/** RFC 9111, 3.5: of a response to a request with `Authorization`. */
export function isForOthersThan({ headers }: CacheKey, { cacheControlDirectives: directives = {} }: CacheValue): boolean {
  const hasAuthorization = Object.keys(headers ?? {}).some((name) => name.toLowerCase() === 'authorization')
  return !hasAuthorization || directives.public === true || directives['s-maxage'] !== undefined || directives['must-revalidate'] === true
}

/** Where directives can't be read, the worst of them counts. */
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

/** `undefined` for what is no list of field names. */
export function fieldNames(argument: string): string[] | undefined {
  const names = argument.split(',').map((name) => name.trim().toLowerCase())
  return names.every((name) => TOKEN.test(name)) ? names : undefined
}

/** Whether all fields are known that the response was chosen by. */
function isChosenBy(vary: CacheValue['vary'], names: string): boolean {
  return names.split(',').every((name) => name.trim() === '' || Object.hasOwn(vary ?? {}, name.trim().toLowerCase()))
}
