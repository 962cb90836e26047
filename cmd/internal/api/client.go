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

// maxLine bounds one line of an event stream, in bytes.
const maxLine = 4 << 20

// ErrNoDaemon says that nobody listens on the socket.
var ErrNoDaemon = errors.New("no rouse daemon listens there")

// Client speaks the one protocol of rouse, HTTP /v1, with a daemon or with a handler of
// the same process: a command does not know which.
type Client struct {
	http    *http.Client
	problem atomic.Pointer[string] // ConfigProblemHeader of the first response that has one
	warn    func(problem string)
}

// OnConfigProblem sets a function that is called once if a response says why the configuration on disk is not in use.
func (c *Client) OnConfigProblem(warn func(problem string)) {
	c.warn = warn
	if problem := c.problem.Load(); problem != nil {
		warn(*problem)
	}
}

// Dial returns a client of the daemon on a Unix socket, or ErrNoDaemon. A daemon of another user, who may have put
// it there, is told nothing: *ForeignError.
func Dial(ctx context.Context, socket string) (*Client, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		// The folder first: in one that others can write, the socket may be replaced at any time.
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
	// A trial, so that "no daemon" is known before the first request: a socket file may have been
	// left by a process that was killed.
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

// ForeignError says that what listens on a socket, or could, is not the user's own.
type ForeignError struct {
	Socket string
	Why    string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the socket %s is not to be trusted, and nothing was said to whoever listens there: %s; give another --home, or remove what is not yours", e.Socket, e.Why)
}

// ownSocket refuses a socket that belongs to another user, or lies in a folder that others can change. One that is
// missing is for whoever connects to report.
func ownSocket(socket string) error {
	if _, err := os.Lstat(socket); err != nil {
		return nil //nolint:nilerr // there is nobody to be told anything
	}

	for _, path := range []string{filepath.Dir(socket), socket} {
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}

		why := owner.Foreign(info)
		if why == "" && info.Mode()&fs.ModeSymlink != 0 { // a home that its owner keeps elsewhere
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

// Close ends the connections that the client keeps for its next request.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// InProcess returns a client whose requests are answered by h directly.
func InProcess(h http.Handler) *Client {
	return &Client{http: &http.Client{Transport: handlerTransport{h}}}
}

// Nothing is what a request says that has nothing to say, and an answer that says no more than that it was done.
type Nothing struct{}

// Error is an answer that was not a success, in the server's own words.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"error"`
	// Usage says that the request itself was wrong (an unknown name, a bad value).
	Usage bool `json:"usage,omitempty"`
	// Kind is "task_limit_reached" where too much waits already, or was asked for by this caller; "" for all else (OSA-26).
	Kind string `json:"kind,omitempty"`
	// RetryAfter is when the same request may be sent again, and the header Retry-After; 0 says nothing of that.
	RetryAfter time.Duration `json:"-"`
	// Fields say what is wrong with an answer to an item of the inbox, field by field.
	Fields []form.Problem `json:"fields,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Get fetches a path with query values into out.
func (c *Client) Get(ctx context.Context, path string, query url.Values, out any) error {
	return c.do(ctx, http.MethodGet, path, query, nil, out)
}

// Post sends in as JSON and reads the answer into out, which may be nil.
func (c *Client) Post(ctx context.Context, path string, in, out any) error {
	return c.do(ctx, http.MethodPost, path, nil, in, out)
}

// Lines follows a stream of JSON lines until it ends or ctx does.
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
			// Cloned, since the scanner reuses its buffer.
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
	answer.UseNumber() // a float64 holds 53 bits of a row's integers
	if err := answer.Decode(out); err != nil {
		return fmt.Errorf("the answer to %s was not understood: %w; is the daemon of the same version?", path, err)
	}

	// The connection serves the next request only if all of this answer was read, and a long one ends after its JSON does.
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

// handlerTransport answers requests with a handler, streaming its body.
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

// pipeResponse is the ResponseWriter of handlerTransport.
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
		// RoundTrip returns with it; from then on the body is a stream.
		w.ready <- status
	}
}

func (w *pipeResponse) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush satisfies http.Flusher; a pipe holds nothing back.
func (w *pipeResponse) Flush() { w.WriteHeader(http.StatusOK) }

// ExportHeader holds the Exported of a file that is sent as it is.
const ExportHeader = "Rouse-Exported"

// WorkLine is a line of the answer to something that takes a while: how far it is, and last
// what became of it.
type WorkLine[T any] struct {
	Done   int64 `json:"done,omitempty"` // rows of an import, bytes of a backup
	Of     int64 `json:"of,omitempty"`
	Result *T    `json:"result,omitempty"`
	*Error
}

// JSONSchemaExtend says that a line has an error where something failed alone.
func (WorkLine[T]) JSONSchemaExtend(s *jsonschema.Schema) { s.Required = nil }

// Import sends a file for import and reports how many of its rows are done.
func (c *Client) Import(ctx context.Context, path string, query url.Values, body io.Reader, progress func(done, of int64)) (Imported, error) {
	resp, err := c.request(ctx, http.MethodPost, path, query, body, "application/octet-stream")
	if err != nil {
		return Imported{}, err
	}
	defer resp.Body.Close()
	return readWork[Imported](resp.Body, path, progress, "the daemon ended before it said what became of the import; look with rouse db AGENT schema whether its rows are there, and repeat it if not")
}

// Backup asks for a copy of an agent's database and reports how far it is, in bytes.
func (c *Client) Backup(ctx context.Context, path string, ask BackupRequest, progress func(done, of int64)) (Backup, error) {
	return postWork[Backup](ctx, c, path, ask, progress, "the daemon ended before it said what became of the backup; rouse db AGENT backups lists it if it was done")
}

// BackUpHome asks for a backup of the whole home and reports how far it is, in bytes.
func (c *Client) BackUpHome(ctx context.Context, ask HomeBackupRequest, progress func(done, of int64)) (HomeBackup, error) {
	return postWork[HomeBackup](ctx, c, "/v1/backups", ask, progress, "the daemon ended before it said what became of the backup; what it had written is removed by the next one to the same place")
}

// Undo undoes a run and reports how many entries of the changelog are done.
func (c *Client) Undo(ctx context.Context, run string, ask UndoRequest, progress func(done, of int64)) (Undo, error) {
	path := "/v1/runs/" + url.PathEscape(run) + "/undo"
	return postWork[Undo](ctx, c, path, ask, progress, "the daemon ended before it said what became of the undo; repeat it: what is undone already is not undone twice")
}

// postWork asks for something that takes a while.
func postWork[T any](ctx context.Context, c *Client, path string, ask any, progress func(done, of int64), lost string) (result T, err error) {
	resp, err := c.send(ctx, http.MethodPost, path, nil, ask)
	if err != nil {
		return result, err
	}
	defer resp.Body.Close()
	return readWork[T](resp.Body, path, progress, lost)
}

// readWork reads the progress and the result of something that takes a while. lost is the error for an
// answer that breaks off.
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

// Export fetches the answer of a query as a file.
func (c *Client) Export(ctx context.Context, path string, in ExportRequest, to io.Writer) (done Exported, err error) {
	resp, err := c.send(ctx, http.MethodPost, path, nil, in)
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()

	// Escaped, since headers are ASCII and warnings may quote any text.
	header, err := url.PathUnescape(resp.Header.Get(ExportHeader))
	if err == nil {
		err = json.Unmarshal([]byte(header), &done)
	}
	if err != nil {
		return done, fmt.Errorf("the answer to %s was not understood: %w; is the daemon of the same version?", path, err)
	}

	n, err := io.Copy(to, resp.Body)
	// In this process an answer has no length, so only the count shows that it broke off.
	if err == nil && n != done.Bytes {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return done, fmt.Errorf("the export could not be written: %w", err)
	}

	return done, nil
}

// Artifact fetches the bytes of an artifact of a run.
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
