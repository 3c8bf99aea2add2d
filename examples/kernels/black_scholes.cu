// Prices of European options by the formula of Black and Scholes, in float and in double.

// One option for each thread: price of the share, strike price and years to go.
template <typename real>
static __device__ void price(const real *shares, const real *strikes, const real *years, real *calls,
                             real *puts, unsigned int count, real rate, real volatility)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    real share = shares[i], strike = strikes[i], time = years[i];
    real deviation = volatility * sqrt(time);
    real d1 = (log(share / strike) + (rate + volatility * volatility / 2) * time) / deviation;
    real d2 = d1 - deviation;
    real discounted = strike * exp(-rate * time);
    calls[i] = share * normcdf(d1) - discounted * normcdf(d2);
    puts[i] = discounted * normcdf(-d2) - share * normcdf(-d1);
}

extern "C" __global__ void black_scholes_float(const float *shares, const float *strikes,
                                               const float *years, float *calls, float *puts,
                                               unsigned int count, float rate, float volatility)
{
    price<float>(shares, strikes, years, calls, puts, count, rate, volatility);
}

extern "C" __global__ void black_scholes_double(const double *shares, const double *strikes,
                                                const double *years, double *calls, double *puts,
                                                unsigned int count, double rate, double volatility)
{
    price<double>(shares, strikes, years, calls, puts, count, rate, volatility);
}
