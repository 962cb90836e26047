package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/invopop/jsonschema"

	"rouse/cmd/internal/api"
)

// refPrefix is the prefix of references to named types in OpenAPI.
const refPrefix = "#/components/schemas/"

// document is a JSON object of the description.
type document = map[string]any

func (s *Server) schemaRoutes() []Route {
	// Build the description once, because the routes do not change and the schemas are slow to
	// build.
	described := sync.OnceValues(func() (json.RawMessage, error) {
		all, err := openAPI(s.routes)
		if err != nil {
			return nil, err
		}
		return json.Marshal(all)
	})
	return []Route{get[document]("/v1/openapi.json", "This description, as OpenAPI 3.1.", s.answer(func(*http.Request) (any, error) { return described() }))}
}

// openAPI describes routes. It uses the same values as the router, and the types of the responses.
func openAPI(routes []Route) (document, error) {
	types := &typeSchemas{components: document{}}
	failure, err := types.of(reflect.TypeFor[api.Error]())
	if err != nil {
		return nil, err
	}

	paths := document{}
	for _, route := range routes {
		operation, err := describe(route, types)
		if err != nil {
			return nil, fmt.Errorf("%s %s cannot be described: %w", route.Method, route.Path, err)
		}

		operation["responses"].(document)["default"] = document{"description": "what was wrong", "content": document{mediaJSON: document{"schema": failure}}}
		item, ok := paths[route.Path].(document)
		if !ok {
			item = document{}
			paths[route.Path] = item
		}
		item[strings.ToLower(route.Method)] = operation
	}

	return document{
		"openapi": "3.1.0",
		"info":    document{"title": "rouse", "version": "1", "description": "The one protocol of rouse: its commands speak it through the socket of the home, programs and pages on the address of dashboard.listen."},
		"paths":   paths,
		"components": document{
			"schemas": types.components,
			"securitySchemes": document{
				"token":   document{"type": "http", "scheme": "bearer", "description": "what is in HOME/dashboard/token"},
				"session": document{"type": "apiKey", "in": "cookie", "name": "rouse_session", "description": "of a browser that followed a login link: rouse dashboard"},
			},
		},
		"security": []any{document{"token": []string{}}, document{"session": []string{}}},
	}, nil
}

var pathValue = regexp.MustCompile(`\{([a-z]+)\}`)

// describe returns the OpenAPI operation of a route.
func describe(route Route, types *typeSchemas) (document, error) {
	parameters := []any{}
	for _, m := range pathValue.FindAllStringSubmatch(route.Path, -1) {
		parameters = append(parameters, document{"name": m[1], "in": "path", "required": true, "schema": document{"type": "string"}})
	}
	for _, p := range route.Query {
		parameters = append(parameters, document{"name": p.Name, "in": "query", "description": p.Description, "schema": p.schema()})
	}

	for _, p := range route.Header {
		parameters = append(parameters, document{"name": p.Name, "in": "header", "description": p.Description, "schema": p.schema()})
	}

	says := route.Summary
	if route.Local {
		says += " On the socket of the home alone."
	}
	out := document{"operationId": operationID(route), "summary": says, "parameters": parameters}

	if route.Body.Media != "" {
		content, err := types.content(route.Body)
		if err != nil {
			return nil, err
		}
		out["requestBody"] = document{"required": true, "content": content}
	}

	content, err := types.content(route.Answer...)
	out["responses"] = document{"200": document{"description": "done", "content": content}}
	return out, err
}

func (p Param) schema() document {
	var one document
	switch p.Kind {
	case ParamCount:
		one = document{"type": "integer", "minimum": 1}
	case ParamCursor:
		one = document{"type": "integer", "minimum": 0}
	case ParamTime:
		one = document{"type": "string", "format": "date-time"}
	case ParamFlag:
		one = document{"type": "boolean"}
	case ParamText:
		one = document{"type": "string"}
	}

	if p.Values != nil {
		one["enum"] = p.Values
	}
	if p.Many {
		return document{"type": "array", "items": one}
	}
	return one
}

// operationID returns a route as one word, such as postRunsIdCancel.
func operationID(route Route) string {
	out := strings.ToLower(route.Method)
	for _, part := range strings.FieldsFunc(strings.TrimPrefix(route.Path, "/v1"), func(r rune) bool { return strings.ContainsRune("/{}._", r) }) {
		out += strings.ToUpper(part[:1]) + part[1:]
	}
	return out
}

// typeSchemas collects the schemas of types without duplicates.
type typeSchemas struct{ components document }

// content returns the schemas of a request or response by media type.
func (t *typeSchemas) content(all ...Content) (document, error) {
	out := document{}
	for _, c := range all {
		if c.Type == nil {
			out[c.Media] = document{}
			continue
		}

		schema, err := t.of(c.Type)
		if err != nil {
			return nil, err
		}
		out[c.Media] = document{"schema": schema}
	}
	return out, nil
}

// of returns the schema of a type and adds referenced types to the components.
func (t *typeSchemas) of(of reflect.Type) (document, error) {
	reflector := jsonschema.Reflector{Anonymous: true, Namer: schemaName, Mapper: mapType}
	text, err := json.Marshal(reflector.ReflectFromType(of))
	if err != nil {
		return nil, err
	}

	var schema document
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "#/$defs/", refPrefix)), &schema); err != nil {
		return nil, err
	}

	if defs, ok := schema["$defs"].(document); ok {
		for name, def := range defs {
			t.components[name] = def
		}
	}
	delete(schema, "$defs")
	delete(schema, "$schema")
	return schema, nil
}

// schemaName returns the name of a type, prefixed with its package unless it is a type of the API.
func schemaName(t reflect.Type) string {
	name, argument, generic := strings.Cut(t.Name(), "[")
	if generic {
		argument = strings.TrimSuffix(argument, "]")
		return name + argument[strings.LastIndexAny(argument, "./")+1:]
	}

	pkg := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
	if pkg == "" || pkg == "api" {
		return name
	}
	return strings.ToUpper(pkg[:1]) + pkg[1:] + name
}

// mapType returns the schema of types that implement json.Marshaler.
func mapType(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[api.Time]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string", Format: "date-time"}, {Type: "null"}}}
	case reflect.TypeFor[document]():
		return &jsonschema.Schema{Type: "object"}
	}
	return nil
}
