package tutti

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
)

// Option says how to connect.
type Option func(*settings)

type settings struct {
	ca, cert, key, name string
	tokenFile           string
	withoutLane         bool
}

// WithTLS trusts the authorities in a PEM file. cert and key are the client's own, "" = none; name is what the
// server's certificate says instead of its address, "" = its address.
func WithTLS(ca, cert, key, name string) Option {
	return func(known *settings) {
		known.ca, known.cert, known.key, known.name = ca, cert, key, name
	}
}

// WithTokenFile sends a bearer token, read anew for each call. It is never sent in plaintext to another machine.
func WithTokenFile(path string) Option {
	return func(known *settings) { known.tokenFile = path }
}

// FromEnvironment is what TUTTI_TLS_CA, TUTTI_TLS_CERT, TUTTI_TLS_KEY and TUTTI_TOKEN_FILE say.
func FromEnvironment() Option {
	return func(known *settings) {
		known.ca, known.cert = os.Getenv("TUTTI_TLS_CA"), os.Getenv("TUTTI_TLS_CERT")
		known.key, known.tokenFile = os.Getenv("TUTTI_TLS_KEY"), os.Getenv("TUTTI_TOKEN_FILE")
	}
}

func isLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

func (known *settings) config() (*tls.Config, error) {
	pem, err := os.ReadFile(known.ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: known.name, MinVersion: tls.VersionTLS12}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM: need the authority of the server's certificate", known.ca)
	}
	if known.cert != "" {
		pair, err := tls.LoadX509KeyPair(known.cert, known.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// bearer is a token file as call credentials.
type bearer struct {
	path   string
	secure bool
}

func (token bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := os.ReadFile(token.path)
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(text))}, nil
}

func (token bearer) RequireTransportSecurity() bool { return token.secure }

// retries finds a server that is started again soon.
var retries = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 20 * time.Second,
}

// userAgent has a number of this process, by which agents tell clients apart that share a socket's path.
var userAgent = func() string {
	var number [8]byte
	_, _ = rand.Read(number[:])
	return "tutti-go " + hex.EncodeToString(number[:])
}()

func dial(address string, options []Option, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return dialAs(address, address, options, more...)
}

// dialAs connects to a target of gRPC, of which address is the first that it stands for.
func dialAs(address, target string, options []Option, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	var known settings
	for _, option := range options {
		option(&known)
	}
	found := append([]grpc.DialOption{grpc.WithNoProxy(), grpc.WithUserAgent(userAgent), grpc.WithConnectParams(retries)}, more...)
	secure := known.ca != "" && !strings.HasPrefix(address, "unix:")
	if secure {
		config, err := known.config()
		if err != nil {
			return nil, err
		}
		found = append(found, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	} else {
		found = append(found, grpc.WithInsecure())
	}
	if known.tokenFile != "" {
		if !secure && !isLocal(address) {
			return nil, fmt.Errorf("a token for %s would travel in plaintext: use WithTLS", address)
		}
		found = append(found, grpc.WithPerRPCCredentials(bearer{known.tokenFile, secure}))
	}
	return grpc.Dial(target, found...)
}
