// Reads a topic as members of a group with kafkajs:
//
//     node main.js BOOTSTRAP TOPIC GROUP MEMBERS COUNT
//
// It prints "MEMBER PARTITION OFFSET VALUE" for each record, commits, and leaves the group when COUNT records have been
// read by all members together and each member has read one at least.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

async function main() {
  const [bootstrap, topic, group, members, count] = process.argv.slice(2)
  const seen = new Set()
  let left = Number(count)
  let enough
  const done = new Promise((resolve) => { enough = resolve })
  const consumers = []
  for (let m = 0; m < Number(members); m++) {
    const kafka = new Kafka({ clientId: `kafkajs-${m}`, brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
    const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 200, sessionTimeout: 10000 })
    consumers.push(consumer)
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        console.log(`${m} ${partition} ${message.offset} ${message.value}`)
        await consumer.commitOffsets([{ topic, partition, offset: (BigInt(message.offset) + 1n).toString() }])
        seen.add(m)
        left--
        if (left <= 0 && seen.size === Number(members)) {
          enough()
        }
      }
    })
  }
  await done
  await Promise.all(consumers.map((c) => c.disconnect()))
}

main().catch((err) => {
  console.error(err)
  process.exit(1)
})
