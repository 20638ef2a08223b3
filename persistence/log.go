package persistence

import (
	"context"
	"os"

	"kagami/messages"
	"kagami/messages/batch"
)

// Log is one replica's log of one partition.
//
// Concurrency: one writer at a time (Append, Truncate, RestartAt, RaiseLogStart,
// ApplyRetention, Flush, Sync and Close are serialised by the caller, the journal; the
// manager's background flush takes care of itself); any number of readers,
// concurrently with the writer. Readers see whole batches only, and never bytes
// at or above the log end they could have observed: a [Chunk] that is out keeps
// its bytes while the log is cut, compacted, restarted, deleted or closed.
//
// Durability: when Append returns, the bytes are in the operating system (a
// crash of the process loses nothing); Flush makes them durable against power
// loss. With FlushAlways, Append flushes before it returns. Truncate and
// RestartAt make the cut durable before they return, so that cut data can't
// come back after a crash. A raised log start survives the death of the process
// at once, and a loss of power with the next flush or when segments went.
//
// Errors: damaged data wraps [ErrCorrupt] with offset and file; a failing disk
// wraps [ErrStorage]. After a failed sync, cut or raise the log refuses writes
// until Renew, or until it is closed and opened again (an fsync that failed once may
// have dropped pages). What found no room may simply be tried again: an append or a
// raise was taken back; a cut was not, and until the same call comes again, and
// finishes it with the same result, the log takes no other change. An offset
// outside [LogStart, End] wraps [ErrOffsetOutOfRange]; any call after Close,
// [ErrClosed], where it returns an error.
type Log interface {
	// Append writes whole batches (magic 2) at the log end exactly as given. The
	// first base offset must be at or above End (gaps are normal on compacted
	// topics), offsets must grow, CRCs are the caller's business unless
	// opts.CheckCRC is set. All or nothing: on error End is unchanged. The log end
	// moves to last base offset + lastOffsetDelta + 1, never by record counts.
	// Feeds producer state, transaction index and epoch cache from the batches;
	// a MIRROR_PID_RESET control batch drops every producer entry. One batch may be
	// up to 2 GiB in theory; 16 MiB and above must work.
	Append(batches []byte, opts AppendOptions) (AppendInfo, error)

	// Read returns whole batches from the batch that contains offset on (on a
	// compacted log: the first batch whose last offset is >= offset), all of them
	// ending below upTo, of at most maxBytes together; the first batch is returned
	// even when larger if minOne. offset == End (or at or above upTo) returns an
	// empty Chunk. The caller must call Chunk.Release.
	Read(offset int64, maxBytes int, upTo int64, minOne bool) (Chunk, error)

	// Truncate cuts the log to offset; a batch that contains offset is removed
	// whole, so the new End may be lower than offset. Epoch, transaction and
	// producer entries above are dropped; producer state is rebuilt. offset >= End
	// changes nothing; offset below LogStart empties the log and moves LogStart
	// there. The new End is where the last batch that stays ends (at least
	// LogStart), never inside a gap: opening the log again finds the same. Reports
	// what was removed.
	Truncate(offset int64) (Cut, error)

	// PlanCut is what Truncate(offset) would remove, and the end it would leave. It
	// changes nothing, and is called like a writer.
	PlanCut(offset int64) (Cut, error)

	// RestartAt removes everything and goes on with an empty log whose LogStart and
	// End are offset (retention on the source overtook us).
	RestartAt(offset int64) (Cut, error)

	// RaiseLogStart moves the log start up to offset (never down, at most to End)
	// and deletes segments wholly below it. Epoch entries below are trimmed as
	// Kafka does: the newest entry at or below the new start stays, at the start.
	RaiseLogStart(offset int64) error

	// Roll begins a new segment, if the active one holds anything, so that
	// RaiseLogStart can delete the old one. It changes no offset.
	Roll() error

	// LogStart is the first offset kept, End the offset of the next batch.
	LogStart() int64
	End() int64
	// RecoveryPoint: everything below is synced to disk.
	RecoveryPoint() int64
	// SizeBytes is the size of all .log files.
	SizeBytes() int64

	// LatestEpoch is the newest epoch in the epoch cache, NoEpoch if empty.
	LatestEpoch() int32
	// EpochEndOffset finds the largest epoch <= epoch in the cache and the offset
	// at which it ends (the next epoch's start, or End). found is false if the
	// cache has none; then both values are -1.
	EpochEndOffset(epoch int32) (e int32, end int64, found bool)
	// EpochForOffset is the epoch of the batch at offset by the cache, NoEpoch if unknown.
	EpochForOffset(offset int64) int32
	// Epochs is a copy of the epoch cache, oldest first.
	Epochs() []EpochEntry

	// OffsetForTimestamp finds the first record with timestamp >= ts, at or above
	// LogStart. ok is false if there is none. It opens compressed batches if it must;
	// with LogAppendTime the batch's max timestamp counts for every record.
	OffsetForTimestamp(ts int64) (TimestampOffset, bool, error)
	// MaxTimestamp is the record with the largest timestamp and the lowest offset
	// among those (ListOffsets -3); ok is false for an empty log.
	MaxTimestamp() (TimestampOffset, bool, error)

	// FirstUnstable is the first offset of the oldest open transaction; ok is false
	// if none is open. The last stable offset is min(HW, that).
	FirstUnstable() (int64, bool)
	// OpenTransactions lists producers with a transaction open, by first offset.
	OpenTransactions() []OpenTransaction
	// AbortedTxns lists aborted transactions that overlap [from, to), by first
	// offset, from the transaction indexes (KIP-98).
	AbortedTxns(from, to int64) ([]AbortedTxn, error)

	// Producers is a copy of the producer state; Producer is one entry.
	Producers() []ProducerEntry
	Producer(id int64) (ProducerEntry, bool)
	// CheckProducer applies Kafka's rules for idempotent producers to a batch that a
	// client wants to append: nil = in order; *DuplicateError = already stored, with
	// the offsets it has; else wraps ErrOutOfOrderSequence, ErrInvalidProducerEpoch
	// or ErrUnknownProducer... Batches without producer id pass.
	CheckProducer(b batch.Header) error

	// ApplyRetention deletes whole old segments by time and size (never the active
	// one unless it is itself expired and rolled) and reports the new log start.
	// Returns how many segments went. ctx bounds the work.
	ApplyRetention(ctx context.Context, p RetentionPolicy) (deleted int, err error)
	// ExpireProducers forgets producers without an open transaction that have written
	// nothing for ProducerExpiryMs. ApplyRetention and Compact do it, too. A log that isn't
	// loaded keeps none in memory, and isn't loaded for this.
	ExpireProducers(nowMillis int64)

	// Compact removes records that later ones with the same key have superseded
	// (cleanup.policy=compact), with Kafka's rules for tombstones, transactions and
	// producers, if that is due by p: from all segments below the active one, the high
	// watermark and the first open transaction. Offsets, log start and end don't change,
	// and the batch right below the cleaned end stays, if without records. Unlike other
	// changes it may run while the log is written; where the log is cut or closed
	// meanwhile it ends without an error. A segment is replaced as a whole or not at all,
	// after a crash too; no room on the disk leaves everything as it was. Damaged data
	// wraps ErrCorrupt and stays as it is.
	Compact(ctx context.Context, p CompactionPolicy) (Compaction, error)
	// PurgedTo: below that offset Compact may have removed tombstones and markers. A
	// copy of the log that ends below it, and begins elsewhere than at the log start, has
	// not seen what they deleted or ended.
	PurgedTo() int64

	// Flush makes everything appended so far durable and moves RecoveryPoint.
	Flush() error
	// Sync makes everything appended so far durable and need not move RecoveryPoint:
	// one sync where Flush takes several. A crash reads from there again.
	Sync() error
	// Renew brings a log that refuses writes after a failure of its disk back, if the
	// disk is well again: what isn't known to be durable is checked, written once more
	// and synced. What is damaged ends the log: End may be lower than before, never
	// higher but by a restart that had failed. A cut that had failed is finished. Without
	// a failure, and for a cut that found no room, it does nothing. It waits for other
	// changes by itself.
	Renew() error
	// SetConfig changes segment and flush settings from the next batch on.
	SetConfig(Config)
	// Close flushes, writes side files (producer snapshot, checkpoints) and closes.
	// It may be called twice. Reads that hold a Chunk keep working until Release.
	Close() error
}

// AppendOptions of one Append.
type AppendOptions struct {
	CheckCRC bool // check every batch's CRC first; a mismatch wraps ErrCorrupt
}

// AppendInfo is what an append did.
type AppendInfo struct {
	FirstOffset  int64 // base offset of the first batch
	LastOffset   int64 // last offset of the last batch
	End          int64 // log end after it
	MaxTimestamp int64 // largest batch timestamp appended, ms
	Bytes        int
	Batches      int
	MaxEpoch     int32 // highest partition leader epoch seen
}

// Chunk is the result of a Read: a range of one segment file, or bytes in
// memory (the memory twin, or a range that spans files). Exactly one of File
// and Bytes is set when Len > 0.
type Chunk struct {
	File  *os.File // for sendfile; position Pos, length Len; don't seek it
	Pos   int64
	Bytes []byte
	Len   int

	FirstOffset int64 // base offset of the first batch
	// NextOffset is where to read on: behind the last batch, or behind the hole that
	// follows it (compaction).
	NextOffset int64
	release    func()
}

// NewChunk is for implementations of Log. release may be nil.
func NewChunk(c Chunk, release func()) Chunk { c.release = release; return c }

// Release lets go of the file. It may be called twice.
func (c *Chunk) Release() {
	if c.release != nil {
		c.release()
		c.release = nil
	}
}

// ReadAll returns the chunk's bytes: Bytes itself, or a fresh read of the file.
func (c *Chunk) ReadAll() ([]byte, error) {
	if c.File == nil {
		return c.Bytes, nil
	}
	b := make([]byte, c.Len)
	if _, err := c.File.ReadAt(b, c.Pos); err != nil {
		return nil, storageError("read chunk", c.File.Name(), err)
	}
	return b, nil
}

// Cut says what a truncation removed; all zero and From = To when nothing was.
type Cut struct {
	From    int64 // new log end
	To      int64 // log end before
	Records int64 // by record counts of the removed batches, control records included
	Bytes   int64
}

// EpochEntry is one line of the leader epoch checkpoint.
type EpochEntry struct {
	Epoch       int32
	StartOffset int64
}

// TimestampOffset is a record found by time.
type TimestampOffset struct {
	Timestamp int64
	Offset    int64
	Epoch     int32 // partition leader epoch of its batch
}

// OpenTransaction is a transaction without its marker.
type OpenTransaction struct {
	ProducerID    int64
	ProducerEpoch int16
	FirstOffset   int64
}

// AbortedTxn is an entry of the transaction index.
type AbortedTxn struct {
	ProducerID       int64
	FirstOffset      int64
	LastOffset       int64 // offset of the ABORT marker
	LastStableOffset int64 // last stable offset when it was written
}

// ProducerEntry is the state of one producer id.
type ProducerEntry struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	LastTimestamp    int64
	TxnFirstOffset   int64           // NoOffset if no transaction is open
	Batches          []ProducerBatch // the last five, oldest first
}

// ProducerBatch remembers one appended batch of a producer.
type ProducerBatch struct {
	FirstSequence int32
	LastSequence  int32
	FirstOffset   int64
	LastOffset    int64
	Timestamp     int64
}

// Config of a log. Zero fields mean the default.
type Config struct {
	SegmentBytes       int   // roll at this size; default 1073741824
	SegmentMillis      int64 // roll at this age by record timestamps; default 604800000
	IndexBytesMax      int   // default 10485760
	IndexIntervalBytes int   // bytes between index entries; default 4096
	FlushAlways        bool  // flush in Append (metadata, mirror state, group offsets, transactions)
	ProducerExpiryMs   int64 // producer.id.expiration.ms; default 86400000
}

// RetentionPolicy of ApplyRetention.
type RetentionPolicy struct {
	NowMillis     int64
	Millis        int64 // retention.ms, -1 = no limit by time
	Bytes         int64 // retention.bytes, -1 = no limit by size
	HighWatermark int64 // nothing at or above is deleted
}

// Info identifies a log on disk.
type Info struct {
	TopicPartition messages.TopicPartition
	Key            messages.PartitionKey // CreatedAt 0 where the folder doesn't say
}
