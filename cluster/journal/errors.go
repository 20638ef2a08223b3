package journal

import "errors"

// ErrNotLogEnd is about an append or a cut whose base offset isn't the log end at its
// place in the journal. The author read an older state; it reads the log end again and
// starts from there.
var ErrNotLogEnd = errors.New("base offset is not the log end")

// ErrDamagedMessage is about bytes in a journal that are no message. A replica that
// meets it can't go on: skipping what others may have applied would make two
// histories of one. It copies from a replica that has applied the message.
var ErrDamagedMessage = errors.New("damaged journal message")

// ErrNewerMessage is about a message that a newer program wrote. The way out is to
// update this node; until then its replicas stand still.
var ErrNewerMessage = errors.New("journal message of a newer version")
