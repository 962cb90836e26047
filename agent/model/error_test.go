package model_test

import (
	"errors"
	"io"
	"testing"

	"rouse/agent/model"
)

// A fallback model must not hide errors of the request or of the configuration.
func TestAllowsFallback(t *testing.T) {
	for _, c := range []struct {
		e    model.Error
		want bool
	}{
		{model.Error{Kind: model.KindUnavailable, Retryable: true}, true},
		{model.Error{Kind: model.KindRateLimited, Retryable: true}, true},
		{model.Error{Kind: model.KindQuota}, true},
		{model.Error{Kind: model.KindTruncated, Retryable: true}, true},
		{model.Error{Kind: model.KindInvalidResponse, Retryable: true}, true},
		{model.Error{Kind: model.KindInvalidResponse}, true}, // for example a login page
		{model.Error{Kind: model.KindTruncated}, false},
		{model.Error{Kind: model.KindAuth}, false},
		{model.Error{Kind: model.KindBadRequest}, false},
		{model.Error{Kind: model.KindContextOverflow}, false},
	} {
		if got := c.e.AllowsFallback(); got != c.want {
			t.Errorf("%s (%v): %v", c.e.Kind, c.e.Retryable, got)
		}
	}
}

func TestErrorNamesItsCause(t *testing.T) {
	err := &model.Error{Kind: model.KindTruncated, Message: "the answer broke off", Err: io.ErrUnexpectedEOF}
	if err.Error() != "the answer broke off: unexpected EOF" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error: %v", err)
	}
	if got := (&model.Error{Message: "no key"}).Error(); got != "no key" {
		t.Errorf("error: %v", got)
	}
}
