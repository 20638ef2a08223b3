package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kagami/cmd/internal/tool"
	"kagami/messages"
)

// Widths of the columns of a line; what is longer isn't cut.
const (
	subjectWidth = 24
	whatWidth    = 32
)

// line is an event for people:
//
//	TIME  TOPIC-PARTITION  FROM -> TO  attempt=1 cause="..." by=... error="..."
//	TIME  TOPIC            stop        by=... request=...
//	TIME  mirror M         configs     bootstrap.servers=... by=...
func (e Event) line() string {
	fields := e.fields()
	s := fmt.Sprintf("%s  %-*s  %-*s  %s", timeText(e.Millis), subjectWidth, e.subject(), whatWidth, e.what(), strings.Join(fields, " "))
	return strings.TrimRight(s, " ")
}

func (e Event) subject() string {
	switch {
	case e.Topic == "":
		return "mirror " + e.Mirror
	case e.Partition < 0:
		return e.Topic
	}
	return messages.TopicPartition{Topic: e.Topic, Partition: e.Partition}.String()
}

func (e Event) what() string {
	switch e.Kind {
	case KindTransition:
		return e.From + " -> " + e.To
	case KindNote:
		return e.To + " (as before)"
	case KindLeader:
		if e.From != "" {
			return "leader " + e.From + " -> " + e.To
		}
		return "leader epoch"
	case KindLME:
		return "last mirror epoch"
	case KindLMEGone:
		return "last mirror epoch dropped"
	case KindDamaged:
		return "DAMAGED RECORD"
	case KindStart, KindPause, KindResume, KindStop:
		return string(e.Kind) + " requested"
	case KindForgotten, KindCreated, KindConfigs, KindDeleted, KindLeft, KindTopicGone, KindTopicSet, KindGrown, KindACLs, KindACLsGone, KindACLsLeft:
	}
	return strings.ReplaceAll(string(e.Kind), "-", " ")
}

func (e Event) fields() []string {
	var out []string
	add := func(name, value string) {
		if value != "" {
			out = append(out, name+"="+quoted(value))
		}
	}
	if e.Attempt != 0 {
		add("attempt", strconv.Itoa(int(e.Attempt)))
	}
	if e.LME != messages.NoEpoch {
		add("lme", strconv.Itoa(int(e.LME)))
	}
	if e.LeaderEpoch != messages.NoEpoch {
		add("epoch", strconv.Itoa(int(e.LeaderEpoch)))
	}
	if c := e.Cut; c != nil {
		add("cut", fmt.Sprintf("%d records, %d bytes, offsets %d to %d", c.Records, c.Bytes, c.From, c.To))
		if c.TotalRecords != c.Records {
			add("cut-in-all", fmt.Sprintf("%d records, %d bytes", c.TotalRecords, c.TotalBytes))
		}
	}
	if g := e.Gap; g != nil {
		add("gap", fmt.Sprintf("offsets %d to %d", g.From, g.To))
		add("gap-met", g.Time)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Configs)) {
		out = append(out, name+"="+quoted(e.Configs[name]))
	}
	add("detail", e.Detail)
	add("cause", e.Cause)
	out = append(out, who("", e.By)...)
	if e.For != nil {
		out = append(out, who("for-", *e.For)...)
	}
	add("error", e.Error)
	return out
}

func who(prefix string, by messages.Requester) []string {
	var out []string
	for _, f := range [][2]string{{"by", by.Principal}, {"client", by.ClientID}, {"host", by.Host}, {"request", by.RequestID}} {
		name := prefix + f[0]
		if prefix != "" && f[0] == "by" {
			name = strings.TrimSuffix(prefix, "-")
		}
		if f[1] != "" {
			out = append(out, name+"="+quoted(f[1]))
		}
	}
	return out
}

// quoted keeps a value in one piece and on one line.
func quoted(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f }) {
		return strconv.Quote(s)
	}
	return s
}

// errPrint: the output doesn't take more.
var errPrint = errors.New("print")

// printer writes events as lines of text or JSON.
type printer struct {
	out    io.Writer
	asJSON bool
}

func (p printer) event(e Event) error {
	if p.asJSON {
		return p.json(e)
	}
	if _, err := fmt.Fprintln(p.out, e.line()); err != nil {
		return fmt.Errorf("%w: %w", errPrint, err)
	}
	return nil
}

func (p printer) json(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("%w: %w", errPrint, err)
	}
	return nil
}

// rowJSON has the names of describe --json. Offsets are never known here: -1.
type rowJSON struct {
	Time              string `json:"time"`
	Mirror            string `json:"mirror"`
	Topic             string `json:"topic"`
	Partition         int32  `json:"partition"`
	SourceOffset      int64  `json:"sourceOffset"`
	DestinationOffset int64  `json:"destinationOffset"`
	Lag               int64  `json:"lag"`
	State             string `json:"state"`
	LastMirrorEpoch   int32  `json:"lastMirrorEpoch"`
	Since             string `json:"since,omitempty"`
	Previous          string `json:"previousState,omitempty"`
	Desired           string `json:"desired,omitempty"`
	Retry             int16  `json:"retry"`
	Error             string `json:"error"`
	LeaderEpoch       int32  `json:"leaderEpoch"`

	CutRecords *int64 `json:"cutRecords,omitempty"`
	CutBytes   *int64 `json:"cutBytes,omitempty"`
	CutFrom    *int64 `json:"cutFrom,omitempty"`
	CutTo      *int64 `json:"cutTo,omitempty"`
	GapFrom    *int64 `json:"gapFrom,omitempty"`
	GapTo      *int64 `json:"gapTo,omitempty"`
	GapTime    string `json:"gapTime,omitempty"`
}

func (p printer) rows(mirror string, millis int64, rows []Row) error {
	if !p.asJSON {
		table := make([]tool.StateRow, len(rows))
		for i, r := range rows {
			table[i] = tool.StateRow{
				Mirror: mirror, Topic: r.Topic, Partition: r.Partition, State: r.State.String(), LME: r.LME,
				Since: sinceText(r.Since), Retry: r.RetryAttempt, Error: r.Error,
			}
		}
		tool.PrintStates(p.out, table)
		return nil
	}
	for _, r := range rows {
		j := rowJSON{
			Time: timeText(millis), Mirror: mirror, Topic: r.Topic, Partition: r.Partition, SourceOffset: -1, DestinationOffset: -1, Lag: -1,
			State: r.State.String(), LastMirrorEpoch: r.LME, Since: sinceText(r.Since), Retry: r.RetryAttempt, Error: r.Error, LeaderEpoch: r.LeaderEpoch,
		}
		if r.Previous != messages.StateUnknown {
			j.Previous = r.Previous.String()
		}
		if r.Desired != messages.DesiredNone {
			j.Desired = r.Desired.String()
		}
		if r.CutRecords > 0 || r.CutBytes > 0 || r.CutFrom >= 0 {
			j.CutRecords, j.CutBytes, j.CutFrom, j.CutTo = &r.CutRecords, &r.CutBytes, &r.CutFrom, &r.CutTo
		}
		if r.GapFrom >= 0 {
			j.GapFrom, j.GapTo = &r.GapFrom, &r.GapTo
			if r.GapAtMillis > 0 {
				j.GapTime = timeText(r.GapAtMillis)
			}
		}
		if err := p.json(j); err != nil {
			return err
		}
	}
	return nil
}

func sinceText(millis int64) string {
	if millis == 0 {
		return ""
	}
	return timeText(millis)
}
