package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/invopop/jsonschema"

	"rouse/internal/form"
	"rouse/internal/owner"
)

// maxLine is the maximum length of a line of an event stream, in bytes.
const maxLine = 4 << 20

// ErrNoDaemon is returned by Dial if no process listens on the socket.
var ErrNoDaemon = errors.New("no rouse daemon listens there")

// Client calls the HTTP API /v1, either of a daemon or of a handler in the same process.
type Client struct {
	http    *http.Client
	problem atomic.Pointer[string] // value of ConfigProblemHeader in the first response that has it
	warn    func(problem string)
}

// OnConfigProblem sets a function that is called at most once, with the reason why the
// configuration on disk is not in use.
func (c *Client) OnConfigProblem(warn func(problem string)) {
	c.warn = warn
	if problem := c.problem.Load(); problem != nil {
		warn(*problem)
	}
}

// Dial returns a client of the daemon on a Unix socket. It returns ErrNoDaemon if there is no
// daemon. It returns a *ForeignError, and sends nothing, if the socket may belong to another user.
func Dial(ctx context.Context, socket string) (*Client, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		// Check the directory first. If other users can write to it, they can replace the socket at
		// any time.
		if err := ownSocket(socket); err != nil {
			return nil, err
		}

		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		if err := owner.CheckPeer(c); err != nil {
			return nil, errors.Join(&ForeignError{socket, err.Error()}, c.Close())
		}
		return c, nil
	}
	// Connect once, to detect a missing daemon before the first request: a killed process may have
	// left the socket file.
	conn, err := dial(ctx, "", "")
	var foreign *ForeignError
	switch {
	case errors.As(err, &foreign):
		return nil, foreign
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoDaemon, err)
	}

	conn.Close()
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial}}}, nil
}

// ForeignError is returned by Dial if another user controls the socket or could replace it.
type ForeignError struct {
	Socket string
	Why    string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the socket %s is not to be trusted, and nothing was said to whoever listens there: %s; give another --home, or remove what is not yours", e.Socket, e.Why)
}

// ownSocket returns an error if a socket belongs to another user or others can change its
// directory. It ignores a missing socket, which connecting reports.
func ownSocket(socket string) error {
	if _, err := os.Lstat(socket); err != nil {
		return nil //nolint:nilerr // without a socket nothing is sent
	}

	for _, path := range []string{filepath.Dir(socket), socket} {
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}

		why := owner.Foreign(info)
		if why == "" && info.Mode()&fs.ModeSymlink != 0 { // a home that the owner keeps elsewhere
			if info, err = os.Stat(path); err == nil {
				why = owner.Foreign(info)
			}
		}
		if why != "" {
			return &ForeignError{socket, path + " " + why}
		}
	}
	return nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// InProcess returns a client that calls h directly.
func InProcess(h http.Handler) *Client {
	return &Client{http: &http.Client{Transport: handlerTransport{h}}}
}

// Nothing is an empty request or response body.
type Nothing struct{}

// Error is an error response of the server.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"error"`
	// Usage means that the request was wrong, for example because of an unknown name or an invalid
	// value.
	Usage bool `json:"usage,omitempty"`
	// Kind is KindLimit if too many tasks are waiting or were requested by this caller. Otherwise
	// it is empty.
	Kind string `json:"kind,omitempty"`
	// RetryAfter is the delay before the request may be repeated, as in the Retry-After header.
	// Zero means unknown.
	RetryAfter time.Duration `json:"-"`
	// Fields lists the errors in an answer to an inbox item, by field.
	Fields []form.Problem `json:"fields,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Get requests a path with query values and decodes the response into out.
func (c *Client) Get(ctx context.Context, path string, query url.Values, out any) error {
	return c.do(ctx, http.MethodGet, path, query, nil, out)
}

// Post sends in as JSON and decodes the response into out. A nil out discards the response.
func (c *Client) Post(ctx context.Context, path string, in, out any) error {
	return c.do(ctx, http.MethodPost, path, nil, in, out)
}

// Lines returns the lines of a JSON stream until the stream or ctx ends.
func (c *Client) Lines(ctx context.Context, path string, query url.Values) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		resp, err := c.send(ctx, http.MethodGet, path, query, nil)
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()

		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, maxLine)

		for lines.Scan() {
			// Clone the line, because the scanner reuses its buffer.
			if len(lines.Bytes()) > 0 && !yield(bytes.Clone(lines.Bytes()), nil) {
				return
			}
		}

		if err := lines.Err(); err != nil && ctx.Err() == nil {
			yield(nil, fmt.Errorf("the event stream broke off, because whoever served it has ended: %w", err))
		}
	}
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	resp, err := c.send(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	return decode(resp, path, out)
}

func decode(resp *http.Response, path string, out any) error {
	defer resp.Body.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}

	answer := json.NewDecoder(resp.Body)
	answer.UseNumber() // float64 cannot represent all int64 values of rows
	if err := answer.Decode(out); err != nil {
		return fmt.Errorf("the answer to %s was not understood: %w; is the daemon of the same version?", path, err)
	}

	// Read to the end so that the connection can be reused: the body may continue after the JSON
	// value.
	_, _ = io.Copy(io.Discard, resp.Body)
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, in any) (*http.Response, error) {
	if in == nil {
		return c.request(ctx, method, path, query, nil, "")
	}

	text, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	return c.request(ctx, method, path, query, bytes.NewReader(text), "application/json")
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, body io.Reader, contentType string) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "rouse", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}

	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}

	resp, err := c.http.Do(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && method == http.MethodGet:
		return nil, fmt.Errorf("the daemon ended before it answered; repeat the command: %w", err)
	case err != nil:
		return nil, fmt.Errorf("the daemon ended before it answered; see with rouse logs whether it still did this, and repeat it if not: %w", err)
	}

	if problem, err := url.PathUnescape(resp.Header.Get(ConfigProblemHeader)); err == nil && problem != "" && c.problem.CompareAndSwap(nil, &problem) && c.warn != nil {
		c.warn(problem)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()

	failure := &Error{Status: resp.StatusCode}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxLine)).Decode(failure); err != nil || failure.Message == "" {
		failure.Message = "the daemon answered " + resp.Status
	}

	return nil, failure
}

// handlerTransport is an http.RoundTripper that calls a handler and streams the response body.
type handlerTransport struct{ handler http.Handler }

func (t handlerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	reader, writer := io.Pipe()
	w := &pipeResponse{header: http.Header{}, body: writer, ready: make(chan int, 1)}
	if req.Body == nil {
		req.Body = http.NoBody
	}

	go func() {
		defer func() {
			if p := recover(); p != nil {
				w.WriteHeader(http.StatusInternalServerError)
				writer.CloseWithError(fmt.Errorf("the request handler failed: %v", p))
			}
		}()

		t.handler.ServeHTTP(w, req)
		w.WriteHeader(http.StatusOK)
		writer.Close()
	}()

	select {
	case status := <-w.ready:
		return &http.Response{
			StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: w.header, Body: reader, Request: req, ContentLength: -1,
		}, nil
	case <-req.Context().Done():
		reader.CloseWithError(req.Context().Err())
		return nil, req.Context().Err()
	}
}

// pipeResponse is the http.ResponseWriter of handlerTransport.
type pipeResponse struct {
	header http.Header
	body   *io.PipeWriter
	ready  chan int
	sent   bool
}

func (w *pipeResponse) Header() http.Header { return w.header }

func (w *pipeResponse) WriteHeader(status int) {
	if !w.sent {
		w.sent = true
		// RoundTrip returns now; the body is streamed from here on.
		w.ready <- status
	}
}

func (w *pipeResponse) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements http.Flusher. A pipe does not buffer.
func (w *pipeResponse) Flush() { w.WriteHeader(http.StatusOK) }

// ExportHeader is the response header with the Exported value of an exported file.
const ExportHeader = "Rouse-Exported"

// WorkLine is a line of the response of a long operation: its progress or, in the last line, its
// result or error.
type WorkLine[T any] struct {
	Done   int64 `json:"done,omitempty"` // rows of an import, bytes of a backup
	Of     int64 `json:"of,omitempty"`
	Result *T    `json:"result,omitempty"`
	*Error
}

// JSONSchemaExtend removes the required fields: a line has an error only if the operation failed.
func (WorkLine[T]) JSONSchemaExtend(s *jsonschema.Schema) { s.Required = nil }

// Import uploads a file for import. It reports progress in rows.
func (c *Client) Import(ctx context.Context, path string, query url.Values, body io.Reader, progress func(done, of int64)) (Imported, error) {
	resp, err := c.request(ctx, http.MethodPost, path, query, body, "application/octet-stream")
	if err != nil {
		return Imported{}, err
	}
	defer resp.Body.Close()
	return readWork[Imported](resp.Body, path, progress, "the daemon ended before it said what became of the import; look with rouse db AGENT schema whether its rows are there, and repeat it if not")
}

// Backup copies an agent's database. It reports progress in bytes.
func (c *Client) Backup(ctx context.Context, path string, ask BackupRequest, progress func(done, of int64)) (Backup, error) {
	return postWork[Backup](ctx, c, path, ask, progress, "the daemon ended before it said what became of the backup; rouse db AGENT backups lists it if it was done")
}

// BackUpHome backs up the whole home. It reports progress in bytes.
func (c *Client) BackUpHome(ctx context.Context, ask HomeBackupRequest, progress func(done, of int64)) (HomeBackup, error) {
	return postWork[HomeBackup](ctx, c, "/v1/backups", ask, progress, "the daemon ended before it said what became of the backup; what it had written is removed by the next one to the same place")
}

// Undo undoes a run. It reports progress in changelog entries.
func (c *Client) Undo(ctx context.Context, run string, ask UndoRequest, progress func(done, of int64)) (Undo, error) {
	path := "/v1/runs/" + url.PathEscape(run) + "/undo"
	return postWork[Undo](ctx, c, path, ask, progress, "the daemon ended before it said what became of the undo; repeat it: what is undone already is not undone twice")
}

// postWork sends a request for a long operation.
func postWork[T any](ctx context.Context, c *Client, path string, ask any, progress func(done, of int64), lost string) (result T, err error) {
	resp, err := c.send(ctx, http.MethodPost, path, nil, ask)
	if err != nil {
		return result, err
	}
	defer resp.Body.Close()
	return readWork[T](resp.Body, path, progress, lost)
}

// readWork reads the progress and the result of a long operation. lost is the error text if the
// response is incomplete.
func readWork[T any](body io.Reader, path string, progress func(done, of int64), lost string) (result T, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)

	for lines.Scan() {
		var line WorkLine[T]
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return result, fmt.Errorf("the answer to %s was not understood: %w; is the daemon of the same version?", path, err)
		}

		switch {
		case line.Error != nil:
			return result, line.Error
		case line.Result != nil:
			return *line.Result, nil
		}

		progress(line.Done, line.Of)
	}

	return result, errors.Join(errors.New(lost), lines.Err())
}

// Export writes the result of a query as a file.
func (c *Client) Export(ctx context.Context, path string, in ExportRequest, to io.Writer) (done Exported, err error) {
	resp, err := c.send(ctx, http.MethodPost, path, nil, in)
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()

	// The header is escaped because headers are ASCII and warnings may contain any text.
	header, err := url.PathUnescape(resp.Header.Get(ExportHeader))
	if err == nil {
		err = json.Unmarshal([]byte(header), &done)
	}
	if err != nil {
		return done, fmt.Errorf("the answer to %s was not understood: %w; is the daemon of the same version?", path, err)
	}

	n, err := io.Copy(to, resp.Body)
	// In-process responses have no Content-Length, so only the count shows that one is incomplete.
	if err == nil && n != done.Bytes {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return done, fmt.Errorf("the export could not be written: %w", err)
	}

	return done, nil
}

// Artifact writes the content of an artifact.
func (c *Client) Artifact(ctx context.Context, run string, a Artifact, to io.Writer) error {
	path := "/v1/runs/" + run + "/artifacts/" + a.ID
	resp, err := c.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	n, err := io.Copy(to, resp.Body)
	if err == nil && n != a.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%s could not be written: %w", a.Name, err)
	}

	return nil
}
