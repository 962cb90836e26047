package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"rouse/cmd/internal/webhook"
	"rouse/internal/dial"
	"rouse/internal/text"
)

// maxAnswer is the maximum length of a recorded response body, in bytes.
const maxAnswer = 200

// outgoing is a Channel that sends signed requests to a URL, as specified by Standard Webhooks.
type outgoing struct {
	url, secret string
	client      *http.Client
}

func newWebhook(s Settings) (Channel, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("its url must be one like https://example.net/notices")
	}
	if s.Secret == "" {
		return nil, errors.New("it needs a secret to sign its requests with")
	}

	client := &http.Client{
		// A redirect would send the notice to an address the owner did not configure.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       sendTimeout,
		Transport:     dial.New(dial.Options{Own: []string{s.URL}, Proxy: true}),
	}
	return &outgoing{url: s.URL, secret: s.Secret, client: client}, nil
}

// posted is the JSON body of a request.
type posted struct {
	Type      string     `json:"type"` // always "notice"
	Timestamp string     `json:"timestamp"`
	Data      postedData `json:"data"`
}

type postedData struct {
	Title    string `json:"title"`
	Body     string `json:"body"`
	Run      int64  `json:"run,omitempty"`
	Job      string `json:"job,omitempty"`
	Agent    string `json:"agent,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
	Incident int64  `json:"incident,omitempty"`
	Link     string `json:"link,omitempty"`
}

// Send implements Channel. All attempts of a notice use the same webhook-id.
func (o *outgoing) Send(ctx context.Context, m Message) (Receipt, error) {
	created := m.CreatedAt
	if created.IsZero() {
		created = time.Now()
	}
	body, err := json.Marshal(posted{"notice", created.UTC().Format(time.RFC3339Nano), postedData{m.Title, m.Body, m.Run, m.Job, m.Agent, string(m.Outcome), m.Incident, m.Link}})
	if err != nil {
		return Receipt{}, err
	}

	id := "notice_" + strconv.FormatInt(m.ID, 10) + "_" + strconv.FormatInt(created.UnixMilli(), 10)
	header, err := webhook.Standard.Sign(o.secret, webhook.Delivery{ID: id}, body, time.Now())
	if err != nil {
		return Receipt{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return Receipt{}, errors.New("its url cannot be used")
	}
	request.Header = header
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "rouse")

	return o.post(request)
}

// post sends a request and returns the response as a receipt.
func (o *outgoing) post(request *http.Request) (Receipt, error) {
	response, err := o.client.Do(request)
	if err != nil {
		// Use only the cause of a url.Error: its text contains the address, which may contain keys.
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return Receipt{}, fmt.Errorf("%s cannot be reached: %w", request.URL.Host, err)
	}
	defer response.Body.Close()

	said, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer)) // a partial body is good enough
	answer := text.OneLine(response.Status + " " + string(bytes.ToValidUTF8(said, nil)))
	switch response.StatusCode / 100 {
	case 2:
		return Receipt{Proven: true, Answer: answer}, nil
	case 3:
		return Receipt{}, fmt.Errorf("%s answered %s: redirects are not followed; write the address that is meant", request.URL.Host, answer)
	}
	return Receipt{}, fmt.Errorf("%s answered %s", request.URL.Host, answer)
}

// Check implements Channel. It returns ErrNotAsked because the receiver would treat a test request
// as a notice.
func (o *outgoing) Check(context.Context) error { return ErrNotAsked }
