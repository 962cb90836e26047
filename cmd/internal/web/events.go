package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/progress"
)

const (
	// eventPage is how many events are read from the ledger at once.
	eventPage = 500
	// heartbeat is after how long a stream of server-sent events says that it is alive.
	heartbeat = 15 * time.Second
	// sendFor is how long a client may take to accept what is sent of a stream.
	sendFor = 30 * time.Second
	// reconnectMS is after how long a browser asks again for a stream that broke off, in milliseconds.
	reconnectMS = 1000
)

// errStopping ends a stream that somebody follows when the server stops.
var errStopping = errors.New("the server stops")

// eventStream is one answer of events.
type eventStream struct {
	filter event.Filter
	kinds  []string // "run.finished", or "run.*"
	follow bool
	sent   bool // as server-sent events
	w      http.ResponseWriter
	live   *liveEvents // nil: only what is on record is wanted
}

// events streams the events of the record.
type events struct {
	*responder
	ledger    *ledger.Ledger
	live      *progress.Tracker
	stopping  <-chan struct{}
	heartbeat time.Duration // of streams
}

func (s *events) routes() []Route {
	return []Route{{Method: http.MethodGet, Path: "/v1/events", Summary: "What happens, as JSON lines from the beginning or, with Accept: text/event-stream, as server-sent events from now on. Last-Event-ID resumes them.",
		Query: []Param{
			{Name: "run", Kind: ParamCursor, Description: "of one run; a stream ends with it"},
			{Name: "job", Kind: ParamText, Description: "of one job"},
			{Name: "kind", Kind: ParamText, Many: true, Description: "of these kinds: run.finished, or run.* for all that begin so"},
			{Name: "since", Kind: ParamTime, Description: "since then"},
			{Name: "after", Kind: ParamCursor, Description: "those behind the event of this id"},
			{Name: "follow", Kind: ParamFlag, Description: "lines also of what is yet to happen"},
			{Name: "from_now", Kind: ParamFlag, Description: "nothing that has happened before"},
			{Name: "live", Kind: ParamFlag, Description: "of a stream that is followed: also what is not on record, twice a second at most: the parts of an answer as a model writes it (step.output, step.draft), and that something goes on (step.progress)"},
		},
		Answer: []Content{{mediaLines, reflect.TypeFor[api.Event]()}, {mediaEvents, reflect.TypeFor[api.Event]()}}, handler: http.HandlerFunc(s.serve)}}
}

// serve streams the record as JSON lines: what there is and, with follow=true, what is added,
// until the client disconnects or the one run that was asked for has finished or waits for a person. A
// stream that ends because the server stops breaks off, so that nobody takes its end for that of a run.
// Who accepts server-sent events gets those, from now on or from where Last-Event-ID says (OSA-26).
func (s *events) serve(w http.ResponseWriter, r *http.Request) {
	es, err := s.newStream(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}

	err = s.stream(r, es)
	// The connection may be used again, later than this stream had time to be sent.
	if late := http.NewResponseController(w).SetWriteDeadline(time.Time{}); late != nil && !errors.Is(late, http.ErrNotSupported) {
		err = errors.Join(err, late)
	}
	if errors.Is(err, errStopping) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http recovers it: its only way to break an answer off
	}
	if err != nil && r.Context().Err() == nil {
		s.log.Warn("an event stream broke off", "error", err)
	}
}

// newStream reads what is asked for, and sends the header.
func (s *events) newStream(w http.ResponseWriter, r *http.Request) (*eventStream, error) {
	q := r.URL.Query()
	es := &eventStream{w: w, filter: event.Filter{Job: q.Get("job"), Limit: eventPage}, kinds: q["kind"], follow: flag(r, "follow")}
	es.sent = strings.Contains(r.Header.Get("Accept"), mediaEvents)
	es.follow = es.follow || es.sent

	es.filter.Since = since(r)
	var err error
	if text := q.Get("run"); text != "" {
		if es.filter.Run, err = runID(text); err != nil {
			return nil, err
		}
		// To follow a run that does not exist would wait for ever.
		if _, err = s.ledger.Runs.Get(r.Context(), es.filter.Run); err != nil {
			return nil, err
		}
	}

	// The header first: a browser that connects again repeats the address that it began with.
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = q.Get("after")
	}
	switch {
	case after != "":
		if es.filter.After, err = strconv.ParseInt(after, 10, 64); err != nil || es.filter.After < 0 {
			return nil, usage("after must be the id of an event, not %q", after)
		}
	case flag(r, "from_now") || es.sent && es.filter.Run == 0:
		if es.filter.After, err = s.ledger.Events.Newest(r.Context()); err != nil {
			return nil, err
		}
	}

	if flag(r, "live") && es.follow && s.live != nil {
		es.live = newLiveEvents(s.live)
	}

	w.Header().Set("Content-Type", mediaLines)
	if es.sent {
		w.Header().Set("Content-Type", mediaEvents)
		w.Header().Set("Cache-Control", "no-store")
		_, err = fmt.Fprintf(w, "retry: %d\n\n", reconnectMS)
	}
	return es, err
}

func (s *events) stream(r *http.Request, es *eventStream) error {
	flush := http.NewResponseController(es.w)
	alive := time.NewTicker(s.heartbeat)
	defer alive.Stop()

	stopping := false
	for {
		// Both before reading, so that an event between reading and waiting is not missed: it
		// closes changed, and a run that ends after the check is read in the next round.
		changed, happening := s.ledger.Changed(), es.live.changed()
		over := es.filter.Run != 0 && s.finished(r, es.filter.Run)
		page, err := s.ledger.Events.List(r.Context(), es.filter)
		if err != nil {
			return err
		}

		if err := es.send(flush, page); err != nil {
			return err
		}
		// A full page: there may be more already, so do not wait.
		if len(page) == eventPage {
			continue
		}
		if !es.follow || over {
			return nil
		}
		if stopping {
			return errStopping
		}

		select {
		case <-changed:
		case <-happening:
			es.live.wait()
		case <-es.live.due():
			if err := es.sendLive(flush); err != nil {
				return err
			}
		case <-alive.C:
			if err := es.beat(flush); err != nil {
				return err
			}
		case <-s.stopping:
			stopping = true // once more, for what was written last
		case <-r.Context().Done():
			return nil
		}
	}
}

// send writes the events of a page that are wanted, and moves on behind all of them.
func (es *eventStream) send(flush *http.ResponseController, page []ledger.Event) error {
	if err := es.allowTime(flush); err != nil {
		return err
	}

	for _, e := range page {
		es.filter.After = e.ID
		if !es.wants(e.Kind) {
			continue
		}

		if es.sent {
			if _, err := fmt.Fprintf(es.w, "id: %d\n", e.ID); err != nil {
				return err
			}
		}
		if err := es.write(newEvent(e)); err != nil {
			return err
		}
	}

	// A follower wants each event now, not when a buffer is full.
	return flush.Flush()
}

// write writes one event.
func (es *eventStream) write(e api.Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}

	if es.sent {
		_, err = fmt.Fprintf(es.w, "data: %s\n\n", line)
	} else {
		_, err = es.w.Write(append(line, '\n'))
	}
	return err
}

// beat says that the stream is alive: a comment, which browsers leave out, and which finds out that nobody is there. Lines
// have no comments; a proxy between is nothing that those who read them have.
func (es *eventStream) beat(flush *http.ResponseController) error {
	if !es.sent {
		return nil
	}
	if err := es.allowTime(flush); err != nil {
		return err
	}
	if _, err := io.WriteString(es.w, ":\n\n"); err != nil {
		return err
	}
	return flush.Flush()
}

// allowTime has the client that accepts nothing more be given up. Within a process there is nobody to wait for.
func (es *eventStream) allowTime(flush *http.ResponseController) error {
	err := flush.SetWriteDeadline(time.Now().Add(sendFor))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (es *eventStream) wants(kind string) bool {
	return len(es.kinds) == 0 || slices.ContainsFunc(es.kinds, func(k string) bool {
		prefix, all := strings.CutSuffix(k, "*")
		return k == kind || all && strings.HasPrefix(kind, prefix)
	})
}

// finished says whether a run is over for now; its record may hold the finish of an
// earlier attempt.
func (s *events) finished(r *http.Request, id int64) bool {
	run, err := s.ledger.Runs.Get(r.Context(), id)
	return err == nil && (run.State == domain.StateFinished || run.WaitsForPerson())
}

// dispatchOf is what an event means to whoever asked for its run (OSA-26).
func dispatchOf(e ledger.Event) api.Dispatch {
	switch e.Kind {
	case "run.started":
		return api.DispatchStarted
	case "call.started", "call.finished":
		return api.DispatchActivity
	case event.Progress, api.EventProgress:
		return api.DispatchProgress
	case "run.waiting":
		return api.DispatchClarification
	case "artifact.shared", api.EventOutput:
		return api.DispatchOutput
	case "step.finished", api.EventDraft:
		return api.DispatchDraft
	case "run.finished":
		return dispatchOfEnd(e.Data)
	}
	return ""
}

func dispatchOfEnd(data json.RawMessage) api.Dispatch {
	var end struct {
		Outcome domain.Outcome `json:"outcome"`
	}
	// What the ledger wrote can be read; should it be cut, the end is one that nobody can rely on.
	if err := json.Unmarshal(data, &end); err != nil {
		return api.DispatchFailed
	}

	switch {
	case end.Outcome == domain.OutcomeCancelled:
		return api.DispatchCancelled
	case !end.Outcome.Reached():
		return api.DispatchFailed
	}
	return api.DispatchCompleted
}

// betweenLive is the least time between two live events of a run.
const betweenLive = 500 * time.Millisecond

// liveEvents are the live events of one stream (OSA-26). They are made of the states of the board when the stream may send some: a client that
// takes them slowly gets fewer and longer parts.
type liveEvents struct {
	board *progress.Tracker
	sent  map[int64]progress.State // of a run, as its client knows it
	last  time.Time                // when some were sent
	timer <-chan time.Time         // nil while nothing has changed since
	next  <-chan struct{}          // closed with the first change since; kept until it is heard, whatever else the stream is woken for
}

// newLiveEvents begins with what the runs are doing now.
func newLiveEvents(b *progress.Tracker) *liveEvents {
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
func (l *liveEvents) states(run int64, job string) []progress.State {
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
	l.sent = make(map[int64]progress.State, len(states))
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
func liveEvent(was, is progress.State) (kind string, data liveData) {
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
