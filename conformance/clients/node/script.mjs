// Helpers for all scripts: servers by environment variable, parts by name, waiting for conditions.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'

export const equal = assert.deepEqual

export function address (name) {
  const [, host, port] = /^(.*):(\d+)$/.exec(process.env[name])
  return { host, port: Number(port) }
}

// Waits until the condition holds; `holds` may throw in between.
export async function until (what, holds, deadlineMs = 20_000) {
  const end = Date.now() + deadlineMs
  let problem
  while (Date.now() < end) {
    try {
      if (await holds()) return
    } catch (error) {
      problem = error
    }
    await sleep(10)
  }
  throw new Error(`not within ${deadlineMs} ms: ${what}`, { cause: problem })
}

// Expects the promise to fail with an error whose text contains these words.
export async function fails (promise, ...words) {
  let given
  try {
    given = await promise
  } catch (error) {
    const missing = words.filter(word => !String(error).includes(word))
    equal(missing, [], `not in ${error}`)
    return
  }
  throw new Error(`no error with ${words}, but ${given}`)
}

// Asks the test, with a line of output, to restart the server on the same port.
export async function restart () {
  console.log('restart')
  process.stdin.resume()
  await once(process.stdin, 'data')
  process.stdin.pause()
}

// Runs the parts named by the arguments; exits with 1 if one failed.
export async function run (parts) {
  let status = 0
  for (const name of process.argv.slice(2)) {
    try {
      await parts[name]()
      console.log(`ok ${name}`)
    } catch (error) {
      status = 1
      console.log(`failed ${name}\n${error.stack}\n${error.cause?.stack ?? ''}`)
    }
  }
  process.exit(status)
}
