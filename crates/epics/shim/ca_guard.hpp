// The facts about the client that the guard before libca needs.
#ifndef BEAMPORT_EPICS_CA_GUARD_HPP
#define BEAMPORT_EPICS_CA_GUARD_HPP

namespace beamport {

// While one lives, servers may answer that they have written a value.
class Writing {
  public:
    Writing();
    ~Writing();
    Writing(const Writing &) = delete;
    Writing &operator=(const Writing &) = delete;
};

} // namespace beamport

#endif
