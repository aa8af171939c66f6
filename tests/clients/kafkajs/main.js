// kafkajs, as it comes from npm: `node main.js VERB JSON`, one line of JSON as the answer. The verbs are those of
// tests/support/other_clients.py.
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')
const lz4 = require('lz4js')
const snappy = require('kafkajs-snappy')
const zstd = require('@bokuweb/zstd-wasm')

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

const client = wanted =>
  new Kafka({
    clientId: 'kafkajs',
    brokers: wanted.bootstrap.split(','),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, retries: wanted.retries ?? 8 },
  })

const produce = async wanted => {
  const idempotent = wanted.idempotent ?? false
  const settings = { allowAutoTopicCreation: false, idempotent }
  if (wanted.transactional_id) settings.transactionalId = wanted.transactional_id
  if (idempotent) settings.maxInFlightRequests = 1
  const producer = client(wanted).producer(settings)
  await producer.connect()
  let sent = 0
  for (let from = 0; from < wanted.count; from += wanted.batch) {
    const messages = []
    for (let n = from; n < Math.min(wanted.count, from + wanted.batch); n++) {
      const message = { key: `k${n}`, value: `${wanted.prefix}-${n}`, headers: { n: String(n) } }
      if (wanted.times) message.timestamp = String(wanted.times[n])
      messages.push(message)
    }
    await producer.send({
      topic: wanted.topic,
      messages,
      acks: wanted.acks ?? -1,
      compression: CODECS[wanted.codec ?? 'none'],
    })
    sent += messages.length
    if (wanted.pause_ms) await pause(wanted.pause_ms)
  }
  await producer.disconnect()
  return { sent }
}

// Several members of one group in this process, until `count` records are read; then all is committed.
const consume = async wanted => {
  const values = []
  const shares = []
  const members = []
  for (let number = 0; number < (wanted.members ?? 1); number++) {
    const consumer = client(wanted).consumer({ groupId: wanted.group, sessionTimeout: 10000, rebalanceTimeout: 10000 })
    consumer.on(consumer.events.GROUP_JOIN, event => {
      shares[number] = event.payload.memberAssignment[wanted.topic] ?? []
    })
    await consumer.connect()
    await consumer.subscribe({ topics: [wanted.topic], fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => void values.push(message.value.toString()) })
    members.push(consumer)
  }
  const all = () => members.every((_, n) => shares[n]?.length) || wanted.members === undefined
  while (values.length < wanted.count || !all()) await pause(50)
  await pause(wanted.settle_ms ?? 300)
  for (const consumer of members) await consumer.disconnect()
  return { values, shares }
}

const administer = async wanted => {
  const admin = client(wanted).admin()
  await admin.connect()
  const { topic } = wanted
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  const retention = async () => {
    const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [resource] })
    return resources[0].configEntries.find(entry => entry.configName === 'retention.ms').configValue
  }
  const configEntries = [{ name: 'retention.ms', value: '86400000' }]
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: 2, replicationFactor: 3, configEntries }] })
  const created = await retention()
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '1000' }] }] })
  const altered = await until(retention, value => value === '1000')
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  const partitions = await until(
    async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length,
    count => count === 3
  )
  const { brokers } = await admin.describeCluster()
  await admin.deleteTopics({ topics: [topic] })
  const gone = await until(async () => !(await admin.listTopics()).includes(topic), yes => yes)
  await admin.disconnect()
  return { created, altered, partitions, brokers: brokers.length, gone }
}

const until = async (look, enough) => {
  let found = await look()
  for (let tries = 0; tries < 100 && !enough(found); tries++) {
    await pause(100)
    found = await look()
  }
  return found
}

const committed = async wanted => {
  const admin = client(wanted).admin()
  await admin.connect()
  const [{ partitions }] = await admin.fetchOffsets({ groupId: wanted.group, topics: [wanted.topic] })
  const { groups } = await admin.describeGroups([wanted.group])
  await admin.deleteGroups([wanted.group])
  await admin.disconnect()
  return { offsets: partitions.map(each => Number(each.offset)).filter(offset => offset > 0), state: groups[0].state }
}

const first_since = async wanted => {
  const admin = client(wanted).admin()
  await admin.connect()
  const found = await admin.fetchTopicOffsetsByTimestamp(wanted.topic, wanted.time)
  await admin.disconnect()
  return { offsets: found.map(each => Number(each.offset)) }
}

const transact = async wanted => {
  const producer = client(wanted).producer({ transactionalId: 'kafkajs-transaction', idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const transaction = await producer.transaction()
  await transaction.send({ topic: wanted.topic, messages: [{ value: 'v' }] })
  await transaction.commit()
  await producer.disconnect()
  return {}
}

const VERBS = { produce, consume, administer, committed, first_since, transact }

const main = async () => {
  await zstd.init()
  const began = Date.now()
  let answer
  try {
    answer = await VERBS[process.argv[2]](JSON.parse(process.argv[3]))
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` }
  }
  // A pipe takes a large answer piece by piece: the process ends when the last is written.
  process.stdout.write(`${JSON.stringify({ ...answer, ms: Date.now() - began })}\n`, () => process.exit(0))
}

main()
