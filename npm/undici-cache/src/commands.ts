// Commands to a server.

import type { Redis } from 'iovalkey'

export type Argument = string | Buffer | number
export type Command = readonly [name: string, ...args: Argument[]]

/** Sends commands as one pipeline. Throws the first error reply. */
export async function exec(redis: Redis, commands: readonly Command[]): Promise<unknown[]> {
  const pipeline = redis.pipeline()
  for (const [name, ...args] of commands) pipeline.callBuffer(name, ...args)
  const answers = await pipeline.exec() ?? []
  return answers.map(([error, value]) => {
    if (error) throw error
    return value
  })
}

/** Closes a connection immediately. `disconnect` would give an unresponsive server another 2 s, and keep a timer for it. */
export function end(redis: Redis): void {
  // No stream exists before the first connection attempt.
  const stream = redis.stream as Redis['stream'] | undefined
  if (stream === undefined) redis.disconnect()
  else stream.destroy()
}
