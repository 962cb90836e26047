package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"rouse/internal/text"
)

// RefusedEvent is the kind of the event that records a refused request.
const RefusedEvent = "webhook.refused"

// Prefix is how the paths of webhooks begin.
const Prefix = "/hooks/"

// Hook is a webhook of a job.
type Hook struct {
	Job     string
	Path    string // with Prefix
	Scheme  Scheme
	Secret  string
	MaxBody int64 // bytes
}

// Accepted is what became of a delivery that was kept.
type Accepted struct {
	Run      int64
	Repeated bool // it was kept before
}

// BusyError says why nothing can be kept now, and when its sender may try again.
type BusyError struct {
	Why   string
	After time.Duration
}

func (e *BusyError) Error() string { return e.Why }

// ErrOtherBody says that another delivery was kept under the same Idempotency-Key.
var ErrOtherBody = errors.New("another body came before with this Idempotency-Key; a new delivery has a new one")

// Engine keeps what comes.
type Engine interface {
	// Webhook is the one at a path; false: there is none.
	Webhook(path string) (Hook, bool)
	// Deliver has a run on disk when it returns; a *BusyError says that there can be none now, ErrOtherBody that there never will be.
	Deliver(ctx context.Context, h Hook, d Delivery, body string) (Accepted, error)
	// Refused notes a request that was not what it says.
	Refused(ctx context.Context, h Hook, why string)
}

// answer is what senders read.
type answer struct {
	Run      string `json:"run,omitempty"`
	Repeated bool   `json:"repeated,omitempty"`
	Error    string `json:"error,omitempty"`
}

// maxHeld bounds the bodies that are held at the same time, in bytes: strangers send them, and nobody knows before their end
// whether they are signed.
const maxHeld = 64 << 20

// errFull says that so much is held already.
var errFull = errors.New("too much is sent to webhooks at once")

type handler struct {
	engine Engine
	log    *slog.Logger
	now    func() time.Time
	held   atomic.Int64 // bytes of bodies that are read or handed over
}

// heldBody counts what is read of a body.
type heldBody struct {
	io.Reader
	all  *atomic.Int64
	most int64
	read int64
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	if b.all.Add(int64(n)) > b.most {
		return n, errFull
	}
	return n, err
}

// release counts it as gone.
func (b *heldBody) release() { b.all.Add(-b.read) }

// NewHandler answers requests at the paths of webhooks.
func NewHandler(e Engine, log *slog.Logger) http.Handler {
	return &handler{engine: e, log: log, now: time.Now}
}

// ServeHTTP implements http.Handler.
func (s *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hook, ok := s.engine.Webhook(r.URL.Path)
	switch {
	case !ok:
		s.refuse(w, r, http.StatusNotFound, "there is no webhook at this path")
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		s.refuse(w, r, http.StatusMethodNotAllowed, "a webhook is sent with POST")
		return
	}
	if err := hook.Scheme.CheckSecret(hook.Secret); err != nil { // the sender keeps it until its owner has set a good one
		w.Header().Set("Retry-After", "60")
		s.reject(w, r, hook, http.StatusServiceUnavailable, err.Error())
		return
	}

	held := &heldBody{Reader: http.MaxBytesReader(w, r.Body, hook.MaxBody), all: &s.held, most: max(maxHeld, hook.MaxBody)}
	defer held.release()
	body, status, err := readBody(r, held, hook.MaxBody)
	if errors.Is(err, errFull) {
		w.Header().Set("Retry-After", "5")
	}
	if err != nil {
		s.reject(w, r, hook, status, err.Error())
		return
	}
	d, err := hook.Scheme.Verify(hook.Secret, r.Header, body, s.now())
	switch {
	case err != nil:
		s.reject(w, r, hook, http.StatusUnauthorized, err.Error())
		return
	case !utf8.Valid(body): // only now: what a stranger sends is not looked into
		s.reject(w, r, hook, http.StatusUnsupportedMediaType, "the body is no UTF-8 text")
		return
	case d.Challenge != "":
		s.write(w, r, http.StatusOK, map[string]string{"challenge": d.Challenge})
		return
	}

	s.deliver(w, r, hook, d, string(body))
}

// deliver answers when the delivery is on disk.
func (s *handler) deliver(w http.ResponseWriter, r *http.Request, hook Hook, d Delivery, body string) {
	// Who sends it may be gone before it is kept, and is told the next time.
	accepted, err := s.engine.Deliver(context.WithoutCancel(r.Context()), hook, d, body)
	var busy *BusyError
	switch {
	case errors.As(err, &busy):
		w.Header().Set("Retry-After", strconv.Itoa(int(max(busy.After, time.Second)/time.Second)))
		s.refuse(w, r, http.StatusServiceUnavailable, busy.Why)
	case errors.Is(err, ErrOtherBody):
		s.reject(w, r, hook, http.StatusUnprocessableEntity, err.Error())
	case err != nil:
		s.log.Error("a delivery could not be kept", "job", hook.Job, "path", hook.Path, "error", err)
		w.Header().Set("Retry-After", "60")
		s.refuse(w, r, http.StatusServiceUnavailable, "the delivery could not be kept; its record says why")
	case accepted.Repeated:
		s.write(w, r, http.StatusOK, answer{Run: strconv.FormatInt(accepted.Run, 10), Repeated: true})
	default:
		s.write(w, r, http.StatusAccepted, answer{Run: strconv.FormatInt(accepted.Run, 10)})
	}
}

// readBody reads what is sent, with the status where it cannot be taken.
func readBody(r *http.Request, in io.Reader, most int64) ([]byte, int, error) {
	large := fmt.Errorf("the body has more than %s, which is what this webhook takes (max_body)", text.Size(most))
	if r.ContentLength > most {
		return nil, http.StatusRequestEntityTooLarge, large
	}
	if kind := r.Header.Get("Content-Type"); kind != "" {
		media, _, err := mime.ParseMediaType(kind)
		if err != nil || !isText(media) {
			return nil, http.StatusUnsupportedMediaType, fmt.Errorf("the body is of the type %.100q; JSON, forms and texts are taken", kind)
		}
	}

	body, err := io.ReadAll(in)
	switch {
	case errors.Is(err, errFull):
		return nil, http.StatusServiceUnavailable, errFull
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, http.StatusRequestEntityTooLarge, large
	case err != nil:
		return nil, http.StatusBadRequest, errors.New("the body could not be read to its end")
	}
	return body, 0, nil
}

func isText(media string) bool {
	switch media {
	case "application/json", "application/x-www-form-urlencoded", "application/xml":
		return true
	}
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml")
}

// reject refuses a request, and notes it.
func (s *handler) reject(w http.ResponseWriter, r *http.Request, hook Hook, status int, why string) {
	s.engine.Refused(r.Context(), hook, why)
	s.refuse(w, r, status, why)
}

func (s *handler) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	w.Header().Set("Connection", "close") // what was sent may not be read
	s.write(w, r, status, answer{Error: why})
}

func (s *handler) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil && r.Context().Err() == nil {
		s.log.Debug("the answer to a delivery could not be sent", "path", r.URL.Path, "error", err)
	}
}
