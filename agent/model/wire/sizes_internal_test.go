package wire

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"rouse/agent/model"
)

// TestContextSizes checks that the sizes in servers' error messages are found.
func TestContextSizes(t *testing.T) {
	t.Parallel()
	c, err := New(Endpoint{BaseURL: "http://127.0.0.1:1", Model: "m"}, Dialect{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string][2]int{
		"request (5842 tokens) exceeds the available context size (4096 tokens), try increasing it":                                                                                       {4096, 5842},
		"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8500 in the messages, 500 in the completion). Please reduce the length of the messages.": {8192, 9000},
		"This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.":                                                                         {128000, 130001},
		"'max_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 1200 input tokens":                                                      {4096, 1200},
		"This endpoint's maximum context length is 131072 tokens. However, you requested about 160000 tokens (150000 of text input, 10000 in the output).":                                {131072, 160000},
		"The decoder prompt (length 5842) is longer than the maximum model length of 4096.":                                                                                               {4096, 5842},
		"prompt is too long: 210000 tokens > 200000 maximum":                                                                                                                              {200000, 210000},
		"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).":                                                                                         {1048576, 1200000},
		"The input token count exceeds the maximum context length of 1,048,576 tokens":                                                                                                    {1048576, 0},
		"Trying to keep the first 5842 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens":                                           {4096, 5842},
		"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length":                                                                          {32768, 40000},
		"the input length exceeds the context length":                                                                                                                                     {},
		"context size of 3 tokens": {},
	} {
		raw, err := json.Marshal(map[string]any{"error": map[string]any{"message": message}})
		if err != nil {
			t.Fatal(err)
		}
		resp := &http.Response{StatusCode: http.StatusBadRequest, Status: "400 Bad Request", Header: http.Header{}}
		var e *model.Error
		if err := c.statusError(resp, c.parseError(raw)); !errors.As(err, &e) || e.Kind != model.KindContextOverflow || e.Window != want[0] || e.Needed != want[1] {
			t.Errorf("%s\nis read as %+v", message, e)
		}
	}
}
