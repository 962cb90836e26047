package web

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/live"
)

// betweenLive is the least time between two live events of a run.
const betweenLive = 500 * time.Millisecond

// liveEvents are the live events of one stream (OSA-26). They are made of the states of the board when the stream may send some: a client that
// takes them slowly gets fewer and longer parts.
type liveEvents struct {
	board *live.Board
	sent  map[int64]live.State // of a run, as its client knows it
	last  time.Time            // when some were sent
	timer <-chan time.Time     // nil while nothing has changed since
	next  <-chan struct{}      // closed with the first change since; kept until it is heard, whatever else the stream is woken for
}

// newLiveEvents begins with what the runs are doing now.
func newLiveEvents(b *live.Board) *liveEvents {
	l := &liveEvents{board: b}
	l.wait()
	return l
}

// liveData is the data of a live event.
type liveData struct {
	Step  int     `json:"step"`
	Text  *string `json:"text,omitempty"` // of output and draft
	Cut   bool    `json:"cut,omitempty"`
	Tool  string  `json:"tool,omitempty"` // of progress
	Bytes int64   `json:"bytes,omitempty"`
	MS    int64   `json:"ms,omitempty"` // since the step or the call began
}

// changed is closed when there may be something to send; nil where nothing is wanted, or is waited for already.
func (l *liveEvents) changed() <-chan struct{} {
	if l == nil || l.timer != nil {
		return nil
	}
	return l.next
}

// wait has due tell when the change may be sent.
func (l *liveEvents) wait() { l.timer = time.After(max(0, betweenLive-time.Since(l.last))) }

// states are what the runs do; changed tells what happens from now on.
func (l *liveEvents) states(run int64, job string) []live.State {
	l.timer, l.next = nil, l.board.Changed() // before reading, so that no change falls between
	return l.board.States(run, job)
}

func (l *liveEvents) due() <-chan time.Time {
	if l == nil {
		return nil
	}
	return l.timer
}

// sendLive sends what is new of what the runs do.
func (es *eventStream) sendLive(flush *http.ResponseController) error {
	l := es.live
	states := l.states(es.filter.Run, es.filter.Job)
	if err := es.allowTime(flush); err != nil {
		return err
	}

	known := l.sent
	l.sent = make(map[int64]live.State, len(states))
	for _, s := range states {
		kind, data := liveEvent(known[s.Run], s)
		l.sent[s.Run] = s
		if kind == "" || !es.wants(kind) {
			continue
		}

		raw, err := json.Marshal(data)
		if err != nil {
			return err
		}
		if err := es.write(newEvent(ledger.Event{Run: s.Run, Job: s.Job, At: time.Now(), Kind: kind, Data: raw})); err != nil {
			return err
		}
	}

	l.last = time.Now()
	return flush.Flush()
}

// liveEvent is what a client has to be told that knows a run as it was; "" where there is nothing. A text that goes on is told by what
// was added, and any other as a whole.
func liveEvent(was, is live.State) (kind string, data liveData) {
	data = liveData{Step: is.Step, Cut: is.Cut}
	begun := was.Step == is.Step && was.Try == is.Try
	added, longer := strings.CutPrefix(is.Text, was.Text)
	switch {
	case is.Text == "" && (begun || was.Text == "" || was.Step != is.Step): // an answer that is whole is on record
	case begun && longer && added == "" && was.Cut == is.Cut:
	case begun && longer && was.Text != "" && !is.Cut:
		data.Text = &added
		return api.EventOutput, data
	default:
		data.Text = &is.Text
		return api.EventDraft, data
	}

	if was.Step == is.Step && was.Tool == is.Tool && was.Bytes == is.Bytes {
		return "", data
	}
	data.Tool, data.Bytes, data.MS = is.Tool, is.Bytes, time.Since(is.Since).Milliseconds()
	return api.EventProgress, data
}
