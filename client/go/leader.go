package tutti

import (
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

// leader is which of several coordinators is called: a list "HOST:PORT,HOST:PORT", of which one leads. After
// NOT_LEADER calls go to the one that was named, after a lost connection to the next.
type leader struct {
	lock     sync.Mutex
	list     []string
	at       string
	moves    int
	told     bool // may one that is not in the list be called?
	resolver *manual.Resolver
}

func newLeader(addresses string, told bool) *leader {
	list := strings.Split(addresses, ",")
	for place := range list {
		list[place] = strings.TrimSpace(list[place])
	}
	return &leader{list: list, at: list[0], told: told, resolver: manual.NewBuilderWithScheme("tutti")}
}

func (self *leader) state() resolver.State {
	host, _, err := net.SplitHostPort(self.at)
	if err != nil {
		host = self.at
	}
	return resolver.State{Addresses: []resolver.Address{{Addr: self.at, ServerName: host}}}
}

// dial is the connection to whoever leads.
func (self *leader) dial(options []Option, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	self.resolver.InitialState(self.state())
	return dialAs(self.at, "tutti:///coordinator", options, append(more, grpc.WithResolvers(self.resolver))...)
}

// hasOthers is whether a call must not wait for one of them.
func (self *leader) hasOthers() bool {
	self.lock.Lock()
	defer self.lock.Unlock()
	return len(self.list) > 1 || self.moves > 0
}

func (self *leader) count() int {
	self.lock.Lock()
	defer self.lock.Unlock()
	return self.moves
}

func (self *leader) next() string {
	for place, address := range self.list {
		if address == self.at {
			return self.list[(place+1)%len(self.list)]
		}
	}
	return self.list[0]
}

func (self *leader) knows(address string) bool {
	for _, one := range self.list {
		if one == address {
			return true
		}
	}
	return self.told || isLocal(address)
}

// isNotLeader is whether another coordinator has to be asked, and which; "" = nobody knows.
func isNotLeader(err error) (string, bool) {
	if status.Code(err) != codes.Unavailable {
		return "", false
	}
	said := AsError(err)
	return said.Metadata["leader"], said.Reason == "NOT_LEADER"
}

// follow goes on to another coordinator, unless that was done since the call that failed began.
func (self *leader) follow(err error, moves int) {
	if status.Code(err) != codes.Unavailable {
		return
	}
	named, other := isNotLeader(err)
	self.lock.Lock()
	defer self.lock.Unlock()
	to := self.next()
	if other && named != "" && named != self.at && self.knows(named) {
		to = named
	}
	if moves != self.moves || to == self.at {
		return
	}
	self.at = to
	self.moves++
	self.resolver.UpdateState(self.state())
}

// mayFollow is whether a coordinator that is not in the list may be called: not where a token would travel in plaintext.
func mayFollow(options []Option) bool {
	var known settings
	for _, option := range options {
		option(&known)
	}
	return known.tokenFile == "" || known.ca != ""
}
