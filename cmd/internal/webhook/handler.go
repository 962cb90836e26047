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

// RefusedEvent is the kind of the event that records a rejected request.
const RefusedEvent = "webhook.refused"

// Prefix is the path prefix of all webhooks.
const Prefix = "/hooks/"

// Hook is a webhook of a job.
type Hook struct {
	Job     string
	Path    string // including Prefix
	Scheme  Scheme
	Secret  string
	MaxBody int64 // bytes
}

// Accepted is the result of a stored delivery.
type Accepted struct {
	Run      int64
	Repeated bool // the delivery was already stored
}

// BusyError is returned by Engine.Deliver if no delivery can be stored now. After is the time until
// the sender may retry.
type BusyError struct {
	Why   string
	After time.Duration
}

func (e *BusyError) Error() string { return e.Why }

// ErrOtherBody is returned by Engine.Deliver if the Idempotency-Key was already used with another
// body.
var ErrOtherBody = errors.New("another body came before with this Idempotency-Key; a new delivery has a new one")

// Engine stores deliveries.
type Engine interface {
	// Webhook returns the webhook with the given path. It returns false if the path is unknown.
	Webhook(path string) (Hook, bool)
	// Deliver stores a delivery and returns its run once the run is on disk. It returns a
	// *BusyError if the sender should retry, or ErrOtherBody if the delivery can never be stored.
	Deliver(ctx context.Context, h Hook, d Delivery, body string) (Accepted, error)
	// Refused records a request that was rejected.
	Refused(ctx context.Context, h Hook, why string)
}

// answer is the JSON body of a response.
type answer struct {
	Run      string `json:"run,omitempty"`
	Repeated bool   `json:"repeated,omitempty"`
	Error    string `json:"error,omitempty"`
}

// maxHeld limits the total size of request bodies in memory, in bytes. A signature can only be
// checked after the whole body has been read, so strangers can send bodies too.
const maxHeld = 64 << 20

// errFull is returned if maxHeld is exceeded.
var errFull = errors.New("too much is sent to webhooks at once")

type handler struct {
	engine Engine
	log    *slog.Logger
	now    func() time.Time
	held   atomic.Int64 // bytes of bodies in memory
}

// heldBody is a reader that adds the bytes read to a total and enforces its limit.
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

// release subtracts the bytes read from the total.
func (b *heldBody) release() { b.all.Add(-b.read) }

// NewHandler returns a handler for the paths of webhooks.
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
	// The sender retries until the owner has set a valid secret.
	if err := hook.Scheme.CheckSecret(hook.Secret); err != nil {
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
	case !utf8.Valid(body): // after the signature: an unverified body is not inspected
		s.reject(w, r, hook, http.StatusUnsupportedMediaType, "the body is no UTF-8 text")
		return
	case d.Challenge != "":
		s.write(w, r, http.StatusOK, map[string]string{"challenge": d.Challenge})
		return
	}

	s.deliver(w, r, hook, d, string(body))
}

// deliver stores a delivery and sends the response when it is on disk.
func (s *handler) deliver(w http.ResponseWriter, r *http.Request, hook Hook, d Delivery, body string) {
	// Store the delivery even if the sender disconnects. It learns the result when it retries.
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

// readBody reads the body. If the body is not acceptable, it returns the response status and an
// error.
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

// reject records a rejected request and sends the response.
func (s *handler) reject(w http.ResponseWriter, r *http.Request, hook Hook, status int, why string) {
	s.engine.Refused(r.Context(), hook, why)
	s.refuse(w, r, status, why)
}

func (s *handler) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	w.Header().Set("Connection", "close") // the body may not have been read to its end
	s.write(w, r, status, answer{Error: why})
}

func (s *handler) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil && r.Context().Err() == nil {
		s.log.Debug("the answer to a delivery could not be sent", "path", r.URL.Path, "error", err)
	}
}
