// franz-go and sarama at every endpoint of a secured broker: each produces, consumes in a group, is denied a topic and is
// refused a login. Prints a line for each check and `done` at the end, as interop/lib.sh wants it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	checkLimit = 20 * time.Second
	count      = 10
	forbidden  = "forbidden"
)

type endpoint struct {
	Name, Address, Protocol, Topics string
	CA, Certificate, Key            string
	Mechanism, User, Password       string
	Token                           string
}

// What a library must do.
type library struct {
	name    string
	produce func(ctx context.Context, at endpoint, topic string) error
	consume func(ctx context.Context, at endpoint, topic string) ([]string, error)
}

func main() {
	content, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var endpoints []endpoint
	if err := json.Unmarshal(content, &endpoints); err != nil {
		panic(err)
	}
	for _, tried := range []library{franz, saramaLibrary} {
		for _, at := range endpoints {
			checkEndpoint(tried, at)
		}
	}
	fmt.Println("done")
}

func checkEndpoint(tried library, at endpoint) {
	name := tried.name + " " + at.Name
	topic := at.Topics + tried.name + "-" + at.Name
	check(name+": records", func(ctx context.Context) error {
		if err := tried.produce(ctx, at, topic); err != nil {
			return err
		}
		values, err := tried.consume(ctx, at, topic)
		if err != nil {
			return err
		}
		if len(values) != count || values[count-1] != fmt.Sprintf("value%d", count-1) {
			return fmt.Errorf("read %v", values)
		}
		return nil
	})
	check(name+": a topic without an ACL is denied", func(ctx context.Context) error {
		return mustFail(tried.produce(ctx, at, forbidden), "authoriz")
	})
	if at.Password != "" {
		at.Password = "wrong"
		check(name+": a wrong password is refused", func(ctx context.Context) error {
			return mustFail(tried.produce(ctx, at, topic), "authenticat", "sasl")
		})
	}
}

func check(name string, body func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	if err := body(ctx); err != nil {
		fmt.Printf("FAILED %s: %s\n", name, strings.Join(strings.Fields(err.Error()), " "))
	} else {
		fmt.Printf("ok %s\n", name)
	}
}

func mustFail(err error, words ...string) error {
	if err == nil {
		return fmt.Errorf("this should have failed")
	}
	for _, word := range words {
		if strings.Contains(strings.ToLower(err.Error()), word) {
			return nil
		}
	}
	return fmt.Errorf("it failed by another reason: %w", err)
}

// The TLS settings of an endpoint; nil without TLS.
func tlsOf(at endpoint) *tls.Config {
	if at.CA == "" {
		return nil
	}
	pem, err := os.ReadFile(at.CA)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	settings := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	if at.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(at.Certificate, at.Key)
		if err != nil {
			panic(err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings
}
