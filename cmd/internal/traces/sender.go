package traces

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// answers is how long one request may take.
	answers = 10 * time.Second
	// firstPause and longestPause are between two requests with the same batch, unless the receiver asks for another.
	firstPause, longestPause = time.Second, 10 * time.Second
	// insists is how often a receiver that is overloaded is asked again for one batch, about a minute in all; then that is given up.
	insists = 8
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 64 << 10
)

// sender sends OTLP over HTTP. The exporter of OpenTelemetry would bring gRPC into the program.
type sender struct {
	url     string
	headers map[string]string
	client  *retryablehttp.Client
}

func newSender(url string, headers map[string]string) *sender {
	c := retryablehttp.NewClient()
	// A receiver that leads elsewhere would get the headers there.
	c.HTTPClient = &http.Client{Timeout: answers, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.Logger = nil // what goes wrong is told by who sends
	c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = insists, firstPause, longestPause
	c.CheckRetry, c.Backoff, c.ErrorHandler = again, pause, retryablehttp.PassthroughErrorHandler
	return &sender{url, headers, c}
}

// upload sends spans. Its errors have nothing in them that the receiver wrote, which could hold what it was sent.
func (s *sender) upload(ctx context.Context, spans *otlp.ResourceSpans) error {
	// On the wire it is the ExportTraceServiceRequest of the protocol.
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: []*otlp.ResourceSpans{spans}})
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(body); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}

	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, s.url, &zipped)
	if err != nil {
		return err
	}
	for name, value := range s.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")

	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the receiver answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}

	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the answer of the receiver: %w", err)
	}
	if n := rejected(answer); n > 0 && resp.Header.Get("Content-Type") == "application/x-protobuf" {
		return fmt.Errorf("the receiver did not take %d of the spans", n)
	}
	return nil
}

// again says whether a request is worth another: the protocol names the statuses, and a request without an answer in time is repeated too.
func again(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var failed *url.Error
		return errors.As(err, &failed) && failed.Timeout(), nil
	}

	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, nil
	}
	return false, nil
}

// pause is as long as the receiver asks for, though no longer than a batch is worth.
func pause(least, most time.Duration, tries int, resp *http.Response) time.Duration {
	return min(retryablehttp.DefaultBackoff(least, most, tries, resp), time.Minute)
}

// rejected returns partial_success.rejected_spans of an ExportTraceServiceResponse.
func rejected(answer []byte) uint64 {
	partial, _ := protowire.ConsumeBytes(field1(answer, protowire.BytesType))
	n, _ := protowire.ConsumeVarint(field1(partial, protowire.VarintType))
	return n
}

// field1 is a message from the value of its field 1 on; nil where it has none of this type, or is no message.
func field1(message []byte, of protowire.Type) []byte {
	for len(message) > 0 {
		number, found, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		if message = message[n:]; number == 1 && found == of {
			return message
		}

		if n = protowire.ConsumeFieldValue(number, found, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}
