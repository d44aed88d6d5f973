// The common part of the scripts: servers by environment, parts by name, waiting for conditions.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'

export const equal = assert.deepEqual

export function address (name) {
  const [, host, port] = /^(.*):(\d+)$/.exec(process.env[name])
  return { host, port: Number(port) }
}

// Checks repeatedly until the condition holds; `holds` may throw meanwhile.
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

// Checks that the promise fails with an error whose text has these words.
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

// Waits until the test has started the server again on the same port, which it reports with a line.
export async function restart () {
  console.log('restart')
  process.stdin.resume()
  await once(process.stdin, 'data')
  process.stdin.pause()
}

// Runs the parts that the arguments name; exits with 1 if one fails.
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
