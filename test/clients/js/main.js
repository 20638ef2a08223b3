// Does one job with kafkajs, for test/e2e:
//
//     node main.js JOB key=value...
//
// The jobs and what they print are those of ../golang/job.go. `node main.js versions` prints the client's version.
'use strict'

const readline = require('readline')
const { Kafka, logLevel, CompressionTypes, ConfigResourceTypes } = require('kafkajs')

// What the job transact does: values, and whether they are committed.
const transactions = [[['c0', 'c1', 'c2'], true], [['a0', 'a1'], false], [['c3', 'c4'], true]]
const copied = 5

const fail = (err) => {
  console.error(err)
  process.exit(1)
}
const say = (...fields) => console.log(fields.join(' '))

function client(job, suffix) {
  return new Kafka({ clientId: job.name + (suffix ? `-${suffix}` : ''), brokers: job.bootstrap.split(','), logLevel: logLevel.ERROR })
}

async function produce(job) {
  const producer = client(job).producer({ idempotent: job.mode === 'idempotent', maxInFlightRequests: 1 })
  await producer.connect()
  const messages = []
  for (let i = Number(job.from || 0); messages.length < Number(job.count); i++) {
    messages.push({ key: `k${i % 7}`, value: `v${i}`, headers: { n: String(i) } })
  }
  const compression = job.codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None
  // One send tells the base offset of each partition and not which record went where: one record each.
  for (const message of messages) {
    const [at] = await producer.send({ topic: job.topic, acks: -1, compression, messages: [message] })
    say('acked', at.partition, at.baseOffset, message.value)
  }
  await producer.disconnect()
}

async function transact(job) {
  const settings = { idempotent: true, maxInFlightRequests: 1, transactionalId: job.id, retry: { retries: 3 } }
  const kafka = client(job)
  const producer = kafka.producer(settings)
  await producer.connect()
  const write = async (transaction, values) => {
    for (const value of values) {
      const [at] = await transaction.send({ topic: job.topic, messages: [{ value }] })
      say('acked', at.partition, at.baseOffset, value)
    }
  }
  for (const [values, commit] of transactions) {
    const transaction = await producer.transaction()
    await write(transaction, values)
    await (commit ? transaction.commit() : transaction.abort())
  }
  const input = await read(kafka, job, 2 * copied)
  for (const [from, commit] of [[0, true], [copied, false]]) {
    const transaction = await producer.transaction()
    await write(transaction, input.slice(from, from + copied).map((value) => `p${value}`))
    const partitions = [{ partition: 0, offset: String(from + copied) }]
    await transaction.sendOffsets({ consumerGroupId: job.group, topics: [{ topic: job.input, partitions }] })
    await (commit ? transaction.commit() : transaction.abort())
  }
  const old = await producer.transaction()
  await write(old, ['f0'])
  const next = kafka.producer(settings)
  await next.connect()
  const transaction = await next.transaction()
  await write(transaction, ['c5'])
  await transaction.commit()
  let refused
  try {
    await write(old, ['f1'])
    await old.commit()
  } catch (err) {
    refused = err
  }
  if (!refused) {
    throw new Error('a producer whose id was taken over could commit')
  }
  say('fenced', refused.message)
  await next.disconnect()
  await producer.disconnect()
}

// read returns the first values of the input; kafkajs reads as a member of a group only.
async function read(kafka, job, count) {
  const consumer = kafka.consumer({ groupId: `${job.group}-reader` })
  await consumer.connect()
  await consumer.subscribe({ topics: [job.input], fromBeginning: true })
  const values = []
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (partition === 0) {
          values.push(String(message.value))
        }
        if (values.length >= count) {
          resolve()
        }
      }
    }).catch(reject)
  })
  await consumer.disconnect()
  return values
}

async function members(job) {
  const consumers = new Map()
  const join = async (name) => {
    const consumer = client(job, name).consumer({ groupId: job.group, heartbeatInterval: 200, sessionTimeout: 10000 })
    consumers.set(name, consumer)
    consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error))
    await consumer.connect()
    await consumer.subscribe({ topics: [job.topic], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        say('record', name, partition, message.offset, message.value)
        await consumer.commitOffsets([{ topic: job.topic, partition, offset: (BigInt(message.offset) + 1n).toString() }])
      }
    })
  }
  const leave = async (name) => {
    await consumers.get(name).disconnect()
    consumers.delete(name)
    say('left', name)
  }
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [what, name] = line.split(' ')
    await (what === 'join' ? join(name) : leave(name))
  }
  await Promise.all([...consumers.keys()].map(leave))
}

async function admin(job) {
  const kafka = client(job)
  const adm = kafka.admin()
  await adm.connect()
  if (job.phase === 'remove') {
    await adm.deleteGroups([job.group])
    say('did', 'delete-group')
    await adm.deleteTopics({ topics: [job.topic] })
    say('did', 'delete-topic')
    await adm.disconnect()
    return
  }
  const configEntries = [{ name: 'retention.ms', value: '3600000' }]
  await adm.createTopics({ topics: [{ topic: job.topic, numPartitions: 2, replicationFactor: 1, configEntries }] })
  say('did', 'create-topic')
  await adm.createPartitions({ topicPartitions: [{ topic: job.topic, count: 3 }] })
  say('did', 'create-partitions')
  const resource = { type: ConfigResourceTypes.TOPIC, name: job.topic }
  await adm.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '7200000' }] }] })
  say('did', 'alter-config')
  const { resources } = await adm.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }], includeSynonyms: true })
  say('did', 'describe-config', resources[0].configEntries[0].configValue)
  const meta = await adm.fetchTopicMetadata({ topics: [job.topic] })
  say('did', 'describe-topic', meta.topics[0].partitions.length)
  await adm.fetchTopicOffsets(job.records) // the library finds no leader of a topic that it hasn't looked up
  await adm.deleteTopicRecords({ topic: job.records, partitions: [{ partition: 0, offset: '3' }] })
  say('did', 'delete-records')
  const offsets = await adm.fetchTopicOffsets(job.records)
  say('did', 'list-offsets', offsets.find((o) => o.partition === 0).low)
  const { groups } = await adm.listGroups()
  say('did', 'list-groups', groups.some((g) => g.groupId === job.group))
  const described = await adm.describeGroups([job.group])
  say('did', 'describe-group', described.groups[0].state)
  await adm.setOffsets({ groupId: job.group, topic: job.records, partitions: [{ partition: 0, offset: '4' }] })
  say('did', 'alter-offsets')
  const at = await adm.fetchOffsets({ groupId: job.group, topics: [job.records] })
  say('did', 'fetch-offsets', at[0].partitions.find((p) => p.partition === 0).offset)
  await adm.disconnect()
}

async function main() {
  const [kind, ...args] = process.argv.slice(2)
  if (kind === 'versions') {
    say('kafkajs', require('kafkajs/package.json').version)
    return
  }
  const job = Object.fromEntries(args.map((arg) => [arg.slice(0, arg.indexOf('=')), arg.slice(arg.indexOf('=') + 1)]))
  await { produce, transact, members, admin }[kind](job)
}

main().catch(fail)
