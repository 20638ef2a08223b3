package configs

// Keys of nodes for transactions.
const (
	TransactionTopicPartitions   = "transaction.state.log.num.partitions"
	TransactionTopicRF           = "transaction.state.log.replication.factor"
	TransactionTopicSegmentBytes = "transaction.state.log.segment.bytes"
	TransactionMaxTimeout        = "transaction.max.timeout.ms"
	TransactionalIDExpiration    = "transactional.id.expiration.ms"
	TransactionalIDCheck         = "transaction.remove.expired.transaction.cleanup.interval.ms"
	TransactionVerification      = "transaction.partition.verification.enable"
	TransactionAddBackoff        = "add.partitions.to.txn.retry.backoff.ms"
	TransactionAddBackoffMax     = "add.partitions.to.txn.retry.backoff.max.ms"
)

func brokerTxnDefs() []Def {
	return []Def{
		{Name: TransactionTopicPartitions, Type: TypeInt, Default: new("50"), Change: ChangeRestart, check: atLeast(1), Doc: "Partitions of __transaction_state. Read when the topic is created; must never change afterwards."},
		{Name: TransactionTopicRF, Type: TypeShort, Default: new("3"), Change: ChangeRestart, check: atLeast(1), Doc: "Replicas of __transaction_state: at most as many as there are live nodes when it is created."},
		{Name: TransactionTopicSegmentBytes, Type: TypeInt, Default: new("104857600"), Change: ChangeRestart, check: atLeast(1), Doc: "segment.bytes of __transaction_state, read when the topic is created."},
		{Name: TransactionMaxTimeout, Type: TypeInt, Default: new("900000"), Change: ChangeRestart, check: atLeast(1), Doc: "Longest transaction.timeout.ms that a producer may ask for."},
		{Name: TransactionalIDExpiration, Type: TypeInt, Default: new("604800000"), Change: ChangeRestart, check: atLeast(1), Doc: "How long, ms, a transactional id without a transaction is kept."},
		{Name: TransactionalIDCheck, Type: TypeInt, Default: new("3600000"), Change: ChangeRestart, check: atLeast(1), Doc: "Pause, ms, between two looks for transactional ids that are too old."},
		{Name: TransactionVerification, Type: TypeBoolean, Default: new("true"), Change: ChangeRestart, Doc: "Ask the coordinator, before the first record of a transaction is stored in a partition, whether the transaction is open and includes the partition."},
		{Name: TransactionAddBackoff, Type: TypeInt, Default: new("20"), Change: ChangeRestart, check: atLeast(1), Doc: "Longest pause, ms, before a partition that couldn't be added to a transaction, because the one before it is still being ended, is added again for the producer."},
		{Name: TransactionAddBackoffMax, Type: TypeInt, Default: new("100"), Change: ChangeRestart, check: atLeast(0), Doc: "How long, ms, that is tried before the producer is told to try itself."},
	}
}
