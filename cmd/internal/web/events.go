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
	// eventPage is the number of events read from the ledger at once.
	eventPage = 500
	// heartbeat is the interval between keep-alive comments in a stream of server-sent events.
	heartbeat = 15 * time.Second
	// sendFor is the timeout for a client to accept a part of a stream.
	sendFor = 30 * time.Second
	// reconnectMS is the delay after which a browser reconnects to a broken stream, in
	// milliseconds.
	reconnectMS = 1000
)

// errStopping ends a followed stream when the server stops.
var errStopping = errors.New("the server stops")

// eventStream is one response with events.
type eventStream struct {
	filter event.Filter
	kinds  []string // such as "run.finished" or "run.*"
	follow bool
	sent   bool // as server-sent events
	w      http.ResponseWriter
	live   *liveEvents // nil to send only recorded events
}

// events handles requests for events.
type events struct {
	*responder
	ledger    *ledger.Ledger
	live      *progress.Tracker
	stopping  <-chan struct{}
	heartbeat time.Duration // interval for streams
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

// serve streams the recorded events as JSON lines. With follow=true it continues with new events.
// It ends if the client disconnects, or if the requested run has finished or waits for a person.
// When the server stops, it breaks the connection, because a normal end means the end of the run.
//
// Clients that accept server-sent events get those, starting now or after Last-Event-ID.
func (s *events) serve(w http.ResponseWriter, r *http.Request) {
	es, err := s.newStream(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}

	err = s.stream(r, es)
	// The connection may be reused, so remove the write deadline of this stream.
	if late := http.NewResponseController(w).SetWriteDeadline(time.Time{}); late != nil && !errors.Is(late, http.ErrNotSupported) {
		err = errors.Join(err, late)
	}
	if errors.Is(err, errStopping) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http recovers it; there is no other way to break a response off
	}
	if err != nil && r.Context().Err() == nil {
		s.log.Warn("an event stream broke off", "error", err)
	}
}

// newStream parses the request and sends the header.
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
		// Following a run that does not exist would wait forever.
		if _, err = s.ledger.Runs.Get(r.Context(), es.filter.Run); err != nil {
			return nil, err
		}
	}

	// The header takes precedence, because a browser reconnects with the original URL.
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
		// Read both before the events, so that no event in between is missed. Such an event closes
		// changed. A run that ends after the check is read in the next round.
		changed, happening := s.ledger.Changed(), es.live.changed()
		over := es.filter.Run != 0 && s.finished(r, es.filter.Run)
		page, err := s.ledger.Events.List(r.Context(), es.filter)
		if err != nil {
			return err
		}

		if err := es.send(flush, page); err != nil {
			return err
		}
		// After a full page there may be more events already, so do not wait.
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
			stopping = true // one more round for the last events
		case <-r.Context().Done():
			return nil
		}
	}
}

// send writes the requested events of a page and advances After past the page.
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

	// Flush, because a follower needs each event immediately.
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

// beat sends a keep-alive comment, which also detects a disconnected client. It has no effect on
// JSON lines, which have no comments.
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

// allowTime sets the write deadline. It has no effect on in-process responses.
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

// finished reports whether a run is over for now. Its events may contain the end of an earlier
// attempt.
func (s *events) finished(r *http.Request, id int64) bool {
	run, err := s.ledger.Runs.Get(r.Context(), id)
	return err == nil && (run.State == domain.StateFinished || run.WaitsForPerson())
}

// dispatchOf returns the meaning of an event for the caller that started the run.
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
	// If the data is truncated, treat the run as failed, because the outcome is unknown.
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

// betweenLive is the minimum time between two live events of a run.
const betweenLive = 500 * time.Millisecond

// liveEvents are the live events of one stream. They are computed from the current state when the
// stream can send. A slow client therefore gets fewer and longer parts.
type liveEvents struct {
	board *progress.Tracker
	sent  map[int64]progress.State // states of runs, as sent to the client
	last  time.Time                // time of the last live event
	timer <-chan time.Time         // nil if there is no change since then
	// next is closed at the first change since then. It is kept until it is handled, even if the
	// stream wakes for another reason.
	next <-chan struct{}
}

// newLiveEvents starts with the current activity of the runs.
func newLiveEvents(b *progress.Tracker) *liveEvents {
	l := &liveEvents{board: b}
	l.wait()
	return l
}

// liveData is the data of a live event.
type liveData struct {
	Step  int     `json:"step"`
	Text  *string `json:"text,omitempty"` // for output and draft
	Cut   bool    `json:"cut,omitempty"`
	Tool  string  `json:"tool,omitempty"` // for progress
	Bytes int64   `json:"bytes,omitempty"`
	MS    int64   `json:"ms,omitempty"` // since the start of the step or call
}

// changed returns a channel that is closed when there may be a live event to send. It returns nil
// if live events are off or a timer is running.
func (l *liveEvents) changed() <-chan struct{} {
	if l == nil || l.timer != nil {
		return nil
	}
	return l.next
}

// wait starts the timer after which the change may be sent.
func (l *liveEvents) wait() { l.timer = time.After(max(0, betweenLive-time.Since(l.last))) }

// states returns the current activity. Later changes close next.
func (l *liveEvents) states(run int64, job string) []progress.State {
	l.timer, l.next = nil, l.board.Changed() // before the read, so that no change is missed
	return l.board.States(run, job)
}

func (l *liveEvents) due() <-chan time.Time {
	if l == nil {
		return nil
	}
	return l.timer
}

// sendLive sends the changes of the activity.
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

// liveEvent returns the event for a client that knows the state was, or "" if there is no change.
// If text was appended, the event contains only the addition, otherwise the whole text.
func liveEvent(was, is progress.State) (kind string, data liveData) {
	data = liveData{Step: is.Step, Cut: is.Cut}
	begun := was.Step == is.Step && was.Try == is.Try
	added, longer := strings.CutPrefix(is.Text, was.Text)
	switch {
	case is.Text == "" && (begun || was.Text == "" || was.Step != is.Step): // a complete answer is recorded
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
